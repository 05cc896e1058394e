"""The recipe that made a snapshot, where one is kept: with the installed projects in this machine's cache."""

from __future__ import annotations

from pathlib import Path

from etude.tasks.generate.install.recipe import NAME, InstallRecipe, read_recipe


def recipe_of(snapshot: str, cache: Path) -> InstallRecipe | None:
    """None where no project that is kept there has it. Raises TaskError for a recipe that was changed by hand."""
    if not snapshot.startswith(NAME):
        return None
    for place in sorted((cache / "environments").glob("*/recipe.toml")):
        text = place.read_text(encoding="utf-8")
        if snapshot.removeprefix(NAME) in text and (found := read_recipe(text)).snapshot == snapshot:
            return found
    return None
