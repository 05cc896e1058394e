"""The error message for a wrong recipe: which file, which key, which value, and the closest key that exists."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from pydantic import ValidationError

from etude.core.spelling import similar_key


class RecipeError(Exception):
    """The recipe can't be used; `problems` holds one line each."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = list(problems)


def closest(key: str, known: Iterable[str]) -> str | None:
    """The dotted key most likely meant: spelled alike, or the same last name in another section."""
    known = list(known)
    same_name = [k for k in known if k.rpartition(".")[2] == key.rpartition(".")[2]]
    return similar_key(key, known) or next(iter(same_name), None)


def explain(error: ValidationError, origins: dict[str, str], known: Iterable[str]) -> RecipeError:
    """Pydantic's findings as lines for a person. `origins` maps a dotted key to the file (or --set) it came from."""
    known = list(known)
    return RecipeError([_line(found, origins, known) for found in error.errors(include_url=False)])


def _line(found: Any, origins: dict[str, str], known: list[str]) -> str:
    key = ".".join(str(part) for part in found["loc"])
    where = _origin(key, origins)
    if found["type"] == "extra_forbidden":
        return f"{where}: {unknown_key(key, found['input'], known)}"
    if found["type"] == "value_error":  # our own words, a sentence that names the value
        message = found["msg"].removeprefix("Value error, ")
        return f"{where}: {key}: {message}" if key else f"{where}: {message}"
    message = found["msg"].removeprefix("Input should be ")
    return f"{where}: {key} = {found['input']!r}: should be {message}" if key else f"{where}: {message}"


def unknown_key(key: str, value: Any, known: list[str]) -> str:
    """The line for a key that no room reads."""
    meant = closest(key, known)
    hint = f"did you mean {meant}?" if meant else "docs/recipe.md lists every key"
    shown = "[...]" if isinstance(value, dict) else repr(value)
    return f"{key} = {shown}: there is no such key; {hint}"


def _origin(key: str, origins: dict[str, str]) -> str:
    """The source of this key, else of a key beneath it (a whole section), else of the section it sits in."""
    if key in origins:
        return origins[key]
    beneath = [source for k, source in origins.items() if k.startswith(key + ".")]
    if beneath:
        return beneath[-1]
    section, _, _ = key.rpartition(".")
    return _origin(section, origins) if section else "recipe"
