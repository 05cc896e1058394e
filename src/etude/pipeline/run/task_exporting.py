"""Puts tasks, the recipes of their environments and sandboxes together for `etude tasks export`."""

from __future__ import annotations

from pathlib import Path

from etude.sandbox.protocol import Machines
from etude.tasks.environment.environment import environment_of
from etude.tasks.export.freezing import freeze_environment
from etude.tasks.export.installation import Installation
from etude.tasks.export.proving import Proof, prove_directory
from etude.tasks.export.writing import Exported, export_task, objection_to
from etude.tasks.generate.install.recipe import NAME, InstallRecipe, read_recipe
from etude.tasks.task import Task

# The recipe that made a snapshot, where one is kept: with the installed projects in this machine's cache.


def recipe_of(snapshot: str, cache: Path) -> InstallRecipe | None:
    """None where no project that is kept there has it. Raises TaskError for a recipe that was changed by hand."""
    if not snapshot.startswith(NAME):
        return None
    for place in sorted((cache / "environments").glob("*/recipe.toml")):
        text = place.read_text(encoding="utf-8")
        if snapshot.removeprefix(NAME) in text and (found := read_recipe(text)).snapshot == snapshot:
            return found
    return None


class Exporter:
    """Looks each snapshot up once, whatever number of its tasks is exported."""

    def __init__(self, pool: Machines, cache: Path) -> None:
        self.pool, self.cache = pool, cache
        self._known: dict[str, Installation | None] = {}

    async def export(self, task: Task, folder: Path, *, prove: bool = False) -> tuple[Exported, Proof | None]:
        """And what its own scripts say of reference and nop, if asked for and if they can. Raises HarborError, CandidateRejected, InfraError,
        UserError where the snapshot is gone."""
        installation = None if objection_to(task) else await self._installation(task)
        exported = export_task(task, folder, installation)
        return exported, await prove_directory(folder, self.pool) if prove and not exported.not_elsewhere else None

    async def _installation(self, task: Task) -> Installation | None:
        environment = environment_of(task.metadata)
        assert environment is not None
        if environment.snapshot not in self._known:
            recipe = recipe_of(environment.snapshot, self.cache)
            self._known[environment.snapshot] = recipe and await freeze_environment(
                environment, recipe.steps, recipe.until, {recipe.project, *recipe.deny}, self.pool
            )
        return self._known[environment.snapshot]
