"""Reads recipes: TOML files in, one validated recipe out, and back to TOML as `recipe.toml` of a run.

Promise: the resolved dump of a recipe reads back as the same recipe (promise 11: a run records what it ran with).
"""

from __future__ import annotations

import json
import logging
import site
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tomli_w
from pydantic import BaseModel, ValidationError

from etude.core.bounded_toml import MOST_KEY_PARTS, TomlRefused, loads
from etude.learn.weights.adapter_folder import is_adapter
from etude.pipeline.recipe.errors import RecipeError, explain
from etude.pipeline.recipe.recipe import Recipe, block

# Former names of settings, read for one release with a notice: old recipes and run directories keep working.
RENAMED = {"report.beside": "report.comparisons"}

# TOML files and `--set` overrides merged left to right into plain data that remembers where each key came from.


@dataclass
class RecipeSource:
    """Merged data; `origins` maps each dotted leaf key to the file it came from, or to `--set`."""

    data: dict[str, Any] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)


def merge(files: Sequence[Path], overrides: Sequence[str] = (), *, below: dict[str, Any] | None = None) -> RecipeSource:
    """Later files win over earlier ones key by key, overrides (`a.b=value`) over all, all over `below`. Raises RecipeError."""
    source = RecipeSource(below or {})
    for file in files:
        _overlay(source, source.data, _with_present_names(parse(file), str(file)), str(file), "")
    for text in overrides:
        key, value = parse_override(text)
        nested: Any = value
        for part in reversed(key.split(".")):
            nested = {part: nested}
        _overlay(source, source.data, _with_present_names(nested, "--set"), "--set", "")
    return source


def _with_present_names(data: dict[str, Any], origin: str) -> dict[str, Any]:
    """The same data with each setting under its present name. Logs a notice for an old name that has a value.

    Raises RecipeError where the data has a setting under both names.
    """
    for old, new in RENAMED.items():
        section, _, name = old.rpartition(".")
        table = data.get(section)
        if not isinstance(table, dict) or name not in table:
            continue
        present = new.rpartition(".")[2]
        if present in table:
            raise RecipeError([f"{origin}: {old} is the former name of {new}, and both are given: remove {old}"])
        if table[name]:  # a run's own recipe.toml has every setting; one without a value needs no notice
            logging.getLogger(__name__).warning(
                "%s: %s is now called %s; the old name ends with the next release", origin, old, new
            )
        table[present] = table.pop(name)
    return data


def parse(file: Path) -> dict[str, Any]:
    """One TOML file as data."""
    try:
        return loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise RecipeError([f"{file}: there is no such recipe file"]) from None
    except IsADirectoryError:
        raise RecipeError([f"{file}: this is a directory; name a .toml file"]) from None
    except (TomlRefused, UnicodeDecodeError) as error:
        raise RecipeError([f"{file}: this is not TOML: {error}"]) from None
    except OSError as error:
        raise RecipeError([f"{file}: can't be read: {error.strerror}"]) from None


def parse_override(text: str) -> tuple[str, Any]:
    """`a.b=value` as key and TOML value; what is no TOML value is taken as a string, so that names need no quotes."""
    key, equals, value = text.partition("=")
    key = key.strip()
    if not equals or not all(key.split(".")):
        raise RecipeError([f"--set {text:.200}: write it as section.key=value, e.g. --set rl.group_size=4"])
    if key.count(".") >= MOST_KEY_PARTS:
        raise RecipeError(
            [f"--set {text[:60]}...: the key has {key.count('.') + 1:,} parts; no key of a recipe is nested so deeply"]
        )
    try:
        return key, loads(f"value = {value}")["value"]
    except TomlRefused:
        return key, value.strip()


def _overlay(source: RecipeSource, below: dict[str, Any], above: dict[str, Any], origin: str, prefix: str) -> None:
    for name, value in above.items():
        key = f"{prefix}{name}"
        if isinstance(value, dict) and value:  # a table adds to the table beneath it, and replaces what is none
            source.origins.pop(key, None)
            if not isinstance(below.get(name), dict):
                below[name] = {}
            _overlay(source, below[name], value, origin, key + ".")
            continue
        below[name] = value
        for gone in [k for k in source.origins if k.startswith(key + ".")]:
            del source.origins[gone]
        source.origins[key] = origin


def read_recipe(files: Sequence[Path], overrides: Sequence[str] = ()) -> Recipe:
    """Files composed left to right, then overrides. Raises RecipeError with a line for each problem."""
    # Over the defaults, so that naming one key of a nested block leaves its neighbours as they were. Limits are
    # left out: `model_fields_set` then says which of them the recipe sets, and `run.limits` derives the others. So is the model, whose
    # defaults follow its family.
    below = Recipe().model_dump(
        mode="json",
        exclude={"harness": True, "engine": {"max_len", "max_slots", "max_batch"}, "rl": {"slots"}, "model": True},
    )
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
    """A checkpoint or adapter that a recipe names, from here or from the root of the repository; None if it is in neither place."""
    for path in (Path(name), checkout() / name):
        if (path / "config.json").is_file() or is_adapter(path):
            return path
    return None


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _without_none(v) for k, v in value.items() if v is not None}
    return [_without_none(v) for v in value] if isinstance(value, list) else value
