"""The door of this room: recipe files in, one validated recipe out, and back to TOML as `recipe.toml` of a run.

Promise: the resolved dump of a recipe reads back as the same recipe (promise 11: a run records what it ran with).
"""

from __future__ import annotations

import json
import site
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tomli_w
from pydantic import BaseModel, ValidationError

from etude.pipeline.recipe.errors import RecipeError, explain
from etude.pipeline.recipe.recipe import Recipe, block
from etude.pipeline.recipe.source import merge


def read_recipe(files: Sequence[Path], overrides: Sequence[str] = ()) -> Recipe:
    """Files composed left to right, then overrides. Raises RecipeError with a line for each problem."""
    # Over the defaults, so that naming one key of a nested block leaves its neighbours as they were. Limits are
    # left out: `model_fields_set` then says which of them the recipe sets, and `run.limits` derives the others.
    below = Recipe().model_dump(mode="json", exclude={"harness": True, "engine": {"max_len"}})
    source = merge(files, overrides, below=below)
    try:
        # Strict, so that "4" is no number; by way of JSON, whose strict rules still take lists for tuples and paths.
        recipe = Recipe.model_validate_json(json.dumps(source.data, default=str), strict=True)
    except ValidationError as error:
        raise explain(error, source.origins, known_keys(Recipe)) from None
    if not recipe.run.name and files:
        recipe.run.name = Path(files[-1]).stem
    return recipe


def resolved_toml(recipe: Recipe) -> str:
    """Every key with its value; keys without a value (None) are left out, which is how TOML says it."""
    return tomli_w.dumps(_without_none(recipe.model_dump(mode="json")))


def known_keys(model: type[BaseModel], prefix: str = "") -> list[str]:
    """All dotted keys of a settings class, sections included."""
    keys: list[str] = []
    for name, found in model.model_fields.items():
        keys.append(prefix + name)
        inner = block(found.annotation)
        if inner is not None:
            keys += known_keys(inner, f"{prefix}{name}.")
    return keys


def find_recipe(name: str) -> Path:
    """A recipe by path, or by name (`laptop`) among those that come with Etude. Raises RecipeError."""
    path = Path(name)
    if path.is_file():
        return path
    wanted = path.name if path.suffix == ".toml" else f"{path.name}.toml"
    if path.parent in (Path("."), Path("recipes")):
        for folder in shipped_folders():
            if (folder / wanted).is_file():
                return folder / wanted
    shipped = sorted(f.stem for folder in shipped_folders() for f in folder.glob("*.toml"))
    hint = (
        f"recipes that come with Etude: {', '.join(dict.fromkeys(shipped))}"
        if shipped
        else "give a path to a .toml file"
    )
    raise RecipeError([f"{name}: there is no such recipe file; {hint}"])


def shipped_folders() -> list[Path]:
    """Where Etude's own recipes are: next to the source in a checkout, under pip's prefix or the user's after `pip install`."""
    prefixes = dict.fromkeys([sys.prefix, site.getuserbase()])
    installed = [Path(prefix) / "share" / "etude" / "recipes" for prefix in prefixes]
    return [f for f in (checkout() / "recipes", *installed) if f.is_dir()]


def checkout() -> Path:
    """The root of the repository that this code lies in; of an installed package a folder without any of its files."""
    return Path(__file__).parents[4]


def find_checkpoint(name: str) -> Path | None:
    """A checkpoint that a recipe names, from here or from the root of the repository; None if it is in neither place."""
    for path in (Path(name), checkout() / name):
        if (path / "config.json").is_file():
            return path
    return None


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _without_none(v) for k, v in value.items() if v is not None}
    return [_without_none(v) for v in value] if isinstance(value, list) else value
