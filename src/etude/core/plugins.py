"""Objects by their import path (`module:name`): how a package reaches an implementation that is in a higher package or in a person's own module.

The package that defines an extension point knows only its protocol.
"""

from __future__ import annotations

import importlib
from typing import Any


class PluginError(ValueError):
    """An import path that leads to no object. Says which, and why."""


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
