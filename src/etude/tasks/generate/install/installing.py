"""From a project of the list to an `InstalledProject`: fetched, built, its tests run three times; kept on disk next to its recipe.

    built = await Installer(pool, default_cache()).install(wanted)

A kept project is taken while the layer store has its snapshot; if that is gone, the kept recipe is replayed, which makes the same again.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from etude.core.files import replace_file
from etude.core.sources.project import SourceOffline
from etude.sandbox.errors import InfraError, UserError
from etude.sandbox.protocol import SandboxPool
from etude.sandbox.spec import SandboxSpec
from etude.tasks.content import files_from_json, files_to_json
from etude.tasks.errors import TaskError
from etude.tasks.generate.generator import Baseline, InstalledProject
from etude.tasks.generate.install.agents.spending import Bill
from etude.tasks.generate.install.baseline import baseline
from etude.tasks.generate.install.building import build, replay
from etude.tasks.generate.install.container import container
from etude.tasks.generate.install.goal import network_note
from etude.tasks.generate.install.left_out import left_out
from etude.tasks.generate.install.pair import EDITION, RULES, Builder, GoalJudge, Setter
from etude.tasks.generate.install.recipe import InstallRecipe, read_recipe
from etude.tasks.generate.install.system import notes
from etude.tasks.generate.protocols import InstallResult, ProjectDiscarded
from etude.tasks.generate.sources.fetched import Fetched, fetch
from etude.tasks.generate.sources.licence import licence_of
from etude.tasks.generate.sources.projects import CatalogueProject


class Installer:
    """`place`: where installed projects are kept, a folder a project."""

    def __init__(
        self,
        pool: SandboxPool,
        cache: Path,
        setter: Setter | None = None,
        builder: Builder | None = None,
        judge: GoalJudge | None = None,
        bill: Bill | None = None,
    ) -> None:
        """`bill`: what setter, builder and judge write their costs on, where they have any."""
        self.pool, self.cache, self.setter, self.builder, self.judge = pool, cache, setter, builder, judge
        self.bill = bill or Bill()

    @property
    def name(self) -> str:
        return self.builder.name if self.builder else RULES

    def folder(self, wanted: CatalogueProject) -> Path:
        by = f"{RULES}-{EDITION}" if self.name == RULES else self.name
        return self.cache / "environments" / re.sub(r"[^\w.+-]", "-", f"{wanted.kind}-{wanted.id}-{by}")

    async def install(self, wanted: CatalogueProject) -> InstallResult:
        """Raises Discarded with the reason, InfraError."""
        kept = await self._kept(wanted)
        if kept is not None:
            return kept
        try:
            project = await asyncio.to_thread(fetch, wanted, self.cache)
        except SourceOffline as error:
            raise InfraError(f"{wanted.id}: {error}") from error
        lacks = notes(container(project.texts()))
        try:
            recipe, trials = await build(project, self.pool, self.setter, self.builder, self.judge)
            found = await self._measured(recipe, project)
            lacks = (*lacks, *await left_out(recipe.snapshot, self.pool))
        except ProjectDiscarded as error:
            discarded = ProjectDiscarded("; ".join((str(error), *lacks)), error.builder)
            discarded.spent = self.bill.of(wanted.id).to_record()
            raise discarded from error
        spent = {**self.bill.of(wanted.id).to_record(), "tries": len(trials) + 1}
        self._keep(wanted, recipe, found, {"spent": spent, "notes": list(lacks)})
        return InstallResult(found, recipe.builder, spent["dollars"] or 0.0, spent, recipe.to_toml(), lacks)

    async def _measured(self, recipe: InstallRecipe, project: Fetched) -> InstalledProject:
        files = project.tree()
        measured, problem = await baseline(recipe.environment, files, self.pool)
        if not measured.passed:
            why = f"{network_note(problem)}{problem}" or "it has none"
            raise ProjectDiscarded(f"none of its tests passes three times: {why}", recipe.builder)
        return InstalledProject(
            recipe.environment, files, measured, project.origin, licence_of(project.texts(), project.wanted.kind)
        )

    async def _kept(self, wanted: CatalogueProject) -> InstallResult | None:
        folder = self.folder(wanted)
        if not (folder / "installed.json").is_file():
            return None
        recipe = read_recipe((folder / "recipe.toml").read_text(encoding="utf-8"))
        try:
            kept = json.loads((folder / "installed.json").read_text(encoding="utf-8"))
            lines = kept["baseline"]
            measured = Baseline(
                frozenset(lines["passed"]), frozenset(lines["flaky"]), {k: tuple(v) for k, v in lines["by_file"].items()}, lines["seconds"]
            )  # fmt: skip
            found = InstalledProject(
                recipe.environment, files_from_json(kept["files"]), measured, kept["origin"], kept["licence"]
            )
            spent = dict(kept.get("spent", {}))  # what the rules installed before this was kept cost nothing
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise TaskError(f"{folder} holds no installed project ({error!r}): remove it") from error
        try:
            box = await self.pool.create(SandboxSpec(snapshot=recipe.snapshot))
        except UserError:
            await self._again(wanted, recipe)
        else:
            await box.kill()
        return InstallResult(
            found, recipe.builder, spent.get("dollars") or 0.0, spent, recipe.to_toml(), tuple(kept.get("notes", ()))
        )

    async def _again(self, wanted: CatalogueProject, recipe: InstallRecipe) -> None:
        project = await asyncio.to_thread(fetch, wanted, self.cache)
        if project.digest != recipe.tree:
            raise ProjectDiscarded(
                f"its tree is another than its recipe's: {project.digest[:12]}, not {recipe.tree[:12]}", recipe.builder
            )
        objection, _ = await replay(recipe, project.files, [], self.pool)
        if objection:
            raise ProjectDiscarded(f"its recipe can't be replayed: {objection}", recipe.builder)

    def _keep(
        self, wanted: CatalogueProject, recipe: InstallRecipe, found: InstalledProject, details: Mapping[str, Any]
    ) -> None:
        """The recipe first: what has `installed.json` is whole."""
        lines = asdict(found.baseline)
        account = {
            "files": files_to_json(found.files),
            "baseline": {**lines, "passed": sorted(lines["passed"]), "flaky": sorted(lines["flaky"])},
            "origin": found.origin,
            "licence": found.licence,
            **details,
        }
        folder = self.folder(wanted)
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in (("recipe.toml", recipe.to_toml()), ("installed.json", json.dumps(account))):
            replace_file(folder / name, text)
