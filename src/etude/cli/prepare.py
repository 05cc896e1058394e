"""From the words on the command line to a run: which recipe, which directory, with which overrides."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from etude.recipe.recipe import Recipe
    from etude.run.execute import Run

DEFAULT_RECIPE = "laptop"
# Keys that name a checkpoint, and the stages that load it.
CHECKPOINTS = {"model.init": {"corpus", "base"}, "run.sft_checkpoint": {"rl", "controls", "bench"}}


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
    _find_checkpoints(recipe)
    return Run(recipe, out if out is not None else Path("runs") / recipe.run.name)


def require_checkpoints(recipe: Recipe, selected: list[str]) -> None:
    """Raises RecipeError now if a selected stage would look for a checkpoint in vain an hour later."""
    from etude.recipe.errors import RecipeError
    from etude.recipe.read import find_checkpoint

    lost = [
        f"{key} = {name}: there is no checkpoint here or in Etude's repository; an installed package brings none, so start "
        f"from a clone, give a path, or leave it to the run with --set {key}="
        for key, name in _named(recipe).items()
        if CHECKPOINTS[key].intersection(selected) and find_checkpoint(name) is None
    ]
    if lost:
        raise RecipeError(lost)


def _find_checkpoints(recipe: Recipe) -> None:
    """What the recipe names relative to the repository is found from any folder. From its root the name stays as it is."""
    from etude.recipe.read import find_checkpoint

    for key, name in _named(recipe).items():
        found = find_checkpoint(name)
        if found is not None and str(found) != str(Path(name)):
            section, _, field = key.partition(".")
            setattr(getattr(recipe, section), field, str(found))


def _named(recipe: Recipe) -> dict[str, str]:
    values = {"model.init": recipe.model.init, "run.sft_checkpoint": recipe.run.sft_checkpoint}
    return {key: str(value) for key, value in values.items() if value}
