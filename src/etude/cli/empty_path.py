"""Every parameter that takes a path refuses an empty one, in one place: `Path("")` is the current folder, where a verb would then write."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, get_args

import typer

# Parameters that take a path or another name in one string say so by their metavar: "DIR|exercises|real", "URL|DIR", "[RECIPE]...".
_PLACES = {"DIR", "FILE", "FROM", "PATH", "RECIPE", "STORE", "SUITE", "TO"}


def refuse_empty_paths(command: Any) -> None:
    """Makes the command, and those below it, refuse empty and blank paths as a usage error before anything runs."""
    for inner in getattr(command, "commands", {}).values():
        refuse_empty_paths(inner)
    for parameter in command.params:
        if takes_path(parameter):
            parameter.process_value = partial(_process, parameter, parameter.process_value)


def takes_path(parameter: Any) -> bool:
    """Whether a parameter of a command is a path, to read or to write, by its type or its metavar."""
    annotation = getattr(getattr(parameter, "type_descriptor", None), "annotation", None)
    if annotation is Path or Path in get_args(annotation):
        return True
    return bool(_PLACES & set(re.split(r"[\s|.\[\]]+", parameter.metavar or "")))


def _process(parameter: Any, process: Callable[[Any, Any], Any], context: Any, value: Any) -> Any:
    """`value`: a string or a list of strings as typed, the default, or None."""
    if any(not text.strip() for text in _texts(value)):
        raise typer.BadParameter(
            "the path is empty; name a file or a folder, or . for the current folder", context, parameter
        )
    return process(context, value)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _texts(part)
