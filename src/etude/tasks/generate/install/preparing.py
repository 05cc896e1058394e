"""Makes the environments of a folder of tasks on a machine that lacks their snapshots, by the recipe and from the tree that the folder keeps.

Nothing is installed by other steps than those that the tasks were proved with: the tree must be the recipe's, and the snapshot is named by
its content. A folder whose tree is another one (of tasks made before trees were kept whole) has it fetched from the registry again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from etude.core.sources.project import SourceOffline
from etude.sandbox.errors import InfraError, UserError
from etude.sandbox.protocol import SandboxPool
from etude.sandbox.spec import SandboxSpec
from etude.tasks.environment.environment import KEY, environment_of
from etude.tasks.errors import TaskError
from etude.tasks.generate.install.building import replay
from etude.tasks.generate.install.recipe import InstallRecipe, read_recipe
from etude.tasks.generate.protocols import ProjectDiscarded
from etude.tasks.generate.sources.fetched import fetch, files_digest
from etude.tasks.generate.sources.projects import KINDS, CatalogueProject
from etude.tasks.store.trees import Trees

Found = Literal["ready", "made"]


class Unprepared(TaskError):
    """An environment that can't be made here; says why."""


async def prepare(trees: Trees, name: str, pool: SandboxPool, cache: Path) -> Found:
    """Raises Unprepared, InfraError."""
    environment = environment_of({KEY: trees.about(name)["environment"]})
    if environment is None or not environment.snapshot:
        return "ready"
    if await _is_here(environment.snapshot, pool):
        return "ready"
    text = trees.recipe(name)
    if not text:
        raise Unprepared(
            f"{name}: the folder keeps no recipe of it; go on with its making (`etude tasks make`), which adds it"
        )
    recipe = read_recipe(text)
    if recipe.snapshot != environment.snapshot:
        raise Unprepared(
            f"{name}: its tasks need {environment.snapshot}, and its recipe makes {recipe.snapshot}: make its tasks again"
        )
    kept = {path: text.encode() for path, text in trees.tree(name).items()}
    if files_digest(kept) != recipe.tree:
        kept = await _fetched(recipe, catalogue_project(str(trees.about(name)["origin"]), recipe), cache)
    objection, output = await replay(recipe, kept, [], pool)
    if objection:
        raise Unprepared(f"{name}: its recipe can't be replayed: {objection} {' '.join(output.split())[-200:]}")
    return "made"


async def _is_here(snapshot: str, pool: SandboxPool) -> bool:
    """Found by starting a sandbox from it. Raises InfraError."""
    try:
        await (await pool.create(SandboxSpec(snapshot=snapshot))).kill()
    except UserError:
        return False
    return True


async def _fetched(recipe: InstallRecipe, wanted: CatalogueProject, cache: Path) -> Mapping[str, bytes]:
    """The recipe's tree from the registry. Raises Unprepared, InfraError."""
    try:
        project = await asyncio.to_thread(fetch, wanted, cache)
    except ProjectDiscarded as error:
        raise Unprepared(f"{wanted.id}: {error}") from error
    except SourceOffline as error:
        raise InfraError(f"{wanted.id}: {error}") from error
    if project.digest != recipe.tree:
        raise Unprepared(
            f"{wanted.id}: what is there now has the tree {project.digest[:12]}, its recipe starts from {recipe.tree[:12]}"
        )
    return project.files


def catalogue_project(origin: str, recipe: InstallRecipe) -> CatalogueProject:
    """From "sdist click 8.1.7 sha256:…". Raises Unprepared for what no registry has."""
    kind, _, rest = origin.partition(" ")
    package, _, rest = rest.partition(" ")
    registries = [one for one in KINDS if one not in ("git", "folder")]
    if kind not in registries or not rest:
        raise Unprepared(
            f"{recipe.project}-{recipe.version}: it came from {origin!r}, which no registry has, and the tree that the folder "
            "keeps is not the one that its recipe starts from: make its tasks again"
        )
    return CatalogueProject(recipe.project, kind, rest.split()[0], recipe.language, package)  # type: ignore[arg-type]
