"""From the words on the command line to a run: which recipe, which directory, with which overrides."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from etude.run.execute import Run

DEFAULT_RECIPE = "laptop"


def prepare(recipes: list[str] | None, overrides: list[str] | None, out: Path | None) -> Run:
    """Without a recipe named, a directory goes on with its own; without a directory either, it is the laptop recipe."""
    # Here and not above: building every room's settings costs 0.1 s, which --help need not pay.
    from etude.recipe.read import find_recipe, read_recipe
    from etude.run.execute import Run

    own = out / "recipe.toml" if out is not None else None
    if not recipes and own is not None and own.is_file():
        files = [own]
    else:
        files = [find_recipe(name) for name in recipes or [DEFAULT_RECIPE]]
    recipe = read_recipe(files, overrides or [])
    return Run(recipe, out if out is not None else Path("runs") / recipe.run.name)
