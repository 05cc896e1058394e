"""What a replay needs besides the session file: the task, the tokenizer, and sandboxes, found in the run it belongs to."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from etude.agent.harness.replay import ReplayDifference
    from etude.core.trace.session import Session
    from etude.pipeline.recipe.recipe import Recipe
    from etude.tasks.task import Task

# Where a run's tokenizers lie. A run that starts RL from a checkpoint of its recipe has that checkpoint's tokenizer in addition to its base's.
_FOLDERS = ("corpus", "base", "sft/checkpoint", "rl/checkpoint")


class ReplayError(Exception):
    """The session can't be replayed from what was given."""


class Replayer:
    """An async context: one pool of sandboxes, one recipe and one set of tokenizers per run, whatever is replayed."""

    def __init__(self, checkpoint: Path | None, recipe: Path | None, plugins: Sequence[str] = ()) -> None:
        """`plugins`: presets by import path that sessions may name."""
        self._plugins = tuple(plugins)
        self._checkpoint = checkpoint
        self._recipe = recipe
        self._recipes: dict[Path | None, Recipe] = {}
        self._renderers: dict[Path, Any] = {}
        self._pool: Any = None

    async def __aenter__(self) -> Replayer:
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._pool is not None:
            await self._pool.close()

    async def replay(self, session: Session, file: Path) -> ReplayDifference | None:
        """Run the session again from its task's files. Raises ReplayError if the task or the tokenizer can't be had."""
        from etude.agent.harness.replay import replay
        from etude.sandbox.pool import open_pool
        from etude.sandbox.spec import SandboxSpec
        from etude.tasks.environment.workspace import open_workspace

        run = next((p for p in file.absolute().parents if (p / "recipe.toml").is_file()), None)
        recipe = self._read(self._recipe or (run / "recipe.toml" if run else None))
        task = _task(recipe, session.header.task_id, file)
        renderer = self._renderer(session, file, run, recipe)
        self._pool = self._pool or await open_pool(recipe.sandbox)
        spec = SandboxSpec(memory_mb=recipe.rl.attempt.memory_mb)
        sandbox = await open_workspace(task, self._pool, spec, history=True)
        try:
            return await replay(session, sandbox, renderer=renderer, plugins=self._plugins)
        finally:
            await sandbox.kill()

    def _read(self, recipe: Path | None) -> Recipe:
        from etude.pipeline.recipe.read import read_recipe

        if recipe not in self._recipes:
            self._recipes[recipe] = read_recipe([recipe] if recipe is not None else [])
        return self._recipes[recipe]

    def _renderer(self, session: Session, file: Path, run: Path | None, recipe: Recipe) -> Any:
        """The one that the session's harness hash names; none for a session without tokens."""
        from etude.agent.harness.replay import matches_harness
        from etude.pipeline.recipe.read import find_checkpoint

        if all(entry.tokens is None for entry in session.entries):
            return None
        from etude.learn.model.named_checkpoint import checkpoint_folder

        if self._checkpoint is not None:
            return self._load(checkpoint_folder(self._checkpoint))
        folders = [run / folder for folder in _FOLDERS] if run is not None else []
        named = find_checkpoint(recipe.run.sft_checkpoint) if recipe.run.sft_checkpoint else None
        folders += [checkpoint_folder(named)] if named is not None else []
        candidates = [self._load(folder) for folder in folders if (folder / "tokenizer.json").is_file()]
        found = next((renderer for renderer in candidates if matches_harness(session, renderer, self._plugins)), None)
        if found is None:
            raise ReplayError(
                f"{file}: {len(candidates)} tokenizers of its run tried, and none with this version of Etude makes the harness "
                f"{session.header.harness} that it was recorded with; name the right one's folder with --checkpoint DIR"
            )
        return found

    def _load(self, folder: Path) -> Any:
        from etude.agent.chat.load import load_renderer

        if folder not in self._renderers:
            self._renderers[folder] = load_renderer(folder)
        return self._renderers[folder]


def _task(recipe: Recipe, task_id: str, file: Path) -> Task:
    """Of the recipe's folder of tasks, if it names one that holds it; else an exercise. Raises ReplayError."""
    from etude.pipeline.run.practice import folder_of
    from etude.tasks.generate.exercises.source import ExerciseSource

    folder = folder_of(recipe)
    if folder is not None and task_id in folder.tasks.rows:
        return folder.task(task_id)
    try:
        return ExerciseSource(recipe.exercises).task(task_id)
    except KeyError as error:
        there = (
            f"and {recipe.tasks.folder} does not hold it"
            if folder is not None
            else "and the recipe names no tasks.folder"
        )
        raise ReplayError(f"{file}: only exercises can be made again, {there}: {error.args[0]}") from None
