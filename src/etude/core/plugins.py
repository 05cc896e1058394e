"""Extension points: an object is found by the name of an entry point or by its import path (`module:name`).

The packages that define an extension point know only its protocol. What implements it may be in a higher package of this project,
in another distribution (entry point group `etude.<extension point>`) or in a module of the person who runs it.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Any


class PluginError(ValueError):
    """A name that is no plug-in, or an import path that can't be imported. Says which, and which names there are."""


def import_object(path: str) -> Any:
    """The object at an import path, as "package.module:name". Raises PluginError."""
    module, _, name = path.partition(":")
    if not module or not name:
        raise PluginError(f"{path!r} is no import path; write module:name, as in my_package.my_module:MyClass")
    try:
        found = importlib.import_module(module)
    except Exception as error:  # a person's module may raise anything
        raise PluginError(f"{path}: the module {module} can't be imported: {type(error).__name__}: {error}") from error
    try:
        for part in name.split("."):
            found = getattr(found, part)
    except AttributeError as error:
        raise PluginError(f"{path}: the module {module} has no {name}") from error
    return found


def find_plugin(point: str, name: str, built_in: Mapping[str, str]) -> Any:
    """What implements extension point `point` under `name`: an import path, one of `built_in` (name to import path), or an entry point of
    group `etude.<point>`. Raises PluginError."""
    if ":" in name:
        return import_object(name)
    if name in built_in:
        return import_object(built_in[name])
    installed = {entry.name: entry.value for entry in entry_points(group=f"etude.{point}")}
    if name in installed:
        return import_object(installed[name])
    known = ", ".join(sorted({*built_in, *installed})) or "none"
    raise PluginError(f"{point}: there is no {name!r}; known: {known}; or give an import path (module:name)")
