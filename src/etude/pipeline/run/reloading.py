"""Asking a run in progress for new processes, and waiting for its answer."""

from __future__ import annotations

import time
import uuid
from pathlib import Path
from typing import Any

from etude.pipeline.recipe.read import read_recipe
from etude.pipeline.run.lock import holder
from etude.rl.reload import REQUEST, Reload, ReloadRefused, ReloadResult, answers, ask, fitted_to

LOOK_S = 0.5


def in_progress() -> Path:
    """The one run of `runs/` that somebody works in."""
    found = [path.parent for path in Path("runs").glob("*/lock") if holder(path.parent)]
    if len(found) != 1:
        names = ", ".join(map(str, found)) or "none"
        raise ReloadRefused(f"say which run: in progress in runs/ are {names}")
    return found[0]


def reload(run: Path, overrides: list[str], only: str, wait: bool) -> ReloadResult | None:
    """`only`: "engines", "trainer" or both. None without `wait`. Raises ReloadRefused, and RecipeError for overrides that are wrong."""
    folder = run / "rl"
    if not (folder / "ledger.jsonl").exists() or not _goes_on(run):
        raise ReloadRefused(f"{run} has no rl stage in progress: change the recipe, and run")
    settings = _settings(run, overrides)
    if settings and only == "trainer":
        raise ReloadRefused(f"--set engine.{next(iter(settings))} is for engines, and --only trainer leaves them be")
    reload = Reload(id=uuid.uuid4().hex[:8], engines=only != "trainer", trainer=only != "engines", settings=settings)
    ask(folder, reload)
    return _answer(run, reload.id) if wait else None


def _goes_on(run: Path) -> bool:
    return bool(holder(run)) and not (run / "rl" / "summary.json").exists()


def _settings(run: Path, overrides: list[str]) -> dict[str, Any]:
    """What the overrides set, checked as in a recipe."""
    names = [word.partition("=")[0].strip() for word in overrides]
    if other := [name for name in names if not name.startswith("engine.")]:
        raise ReloadRefused(f"--set {other[0]}: only engine.* may change while a run goes on")
    recipe = read_recipe([run / "recipe.toml"], overrides)
    keys = [name.removeprefix("engine.") for name in names]
    fitted = fitted_to(recipe.rl, recipe.engine)
    for key in keys:
        if (taken := getattr(fitted, key)) != (given := getattr(recipe.engine, key)):
            raise ReloadRefused(f"--set engine.{key}={given}: the rl section makes it {taken}")
    return {key: getattr(recipe.engine, key) for key in keys}


def _answer(run: Path, id: str) -> ReloadResult:
    while True:
        goes_on = _goes_on(run)
        if found := [answer for answer in answers(run / "rl") if answer.id == id]:
            if found[0].error:
                raise ReloadRefused(f"reload {id}: {found[0].error}")
            return found[0]
        if not goes_on:
            (run / "rl" / REQUEST).unlink(missing_ok=True)
            raise ReloadRefused(f"{run} ended before reload {id} was done")
        time.sleep(LOOK_S)
