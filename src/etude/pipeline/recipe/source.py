"""TOML files and `--set` overrides merged left to right into plain data that remembers where each key came from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from etude.core.bounded_toml import MOST_KEY_PARTS, TomlRefused, loads
from etude.pipeline.recipe.errors import RecipeError


@dataclass
class RecipeSource:
    """Merged data; `origins` maps each dotted leaf key to the file it came from, or to `--set`."""

    data: dict[str, Any] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)


def merge(files: Sequence[Path], overrides: Sequence[str] = (), *, below: dict[str, Any] | None = None) -> RecipeSource:
    """Later files win over earlier ones key by key, overrides (`a.b=value`) over all, all over `below`. Raises RecipeError."""
    source = RecipeSource(below or {})
    for file in files:
        _overlay(source, source.data, parse(file), str(file), "")
    for text in overrides:
        key, value = parse_override(text)
        nested: Any = value
        for part in reversed(key.split(".")):
            nested = {part: nested}
        _overlay(source, source.data, nested, "--set", "")
    return source


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
