"""Objects by their import path (`module:name`): how a package reaches an implementation that is in a higher package or in a person's own module.

The package that defines an extension point knows only its protocol. A person's module has to be installed or below PYTHONPATH, which stages and
Ray's processes inherit.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import re
from pathlib import Path
from typing import Any

_IMPORT_PATH = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


class PluginError(ValueError):
    """An import path that leads to no object. Says which, and why."""


def is_import_path(text: str) -> bool:
    """Whether a setting names an object of a module and no built-in choice."""
    return _IMPORT_PATH.fullmatch(text) is not None


def source_digest(path: str) -> str:
    """The sha256, in hex, of the source file of an import path's module. Raises PluginError where there is no such file."""
    import_object(path)
    module = importlib.import_module(path.partition(":")[0])
    try:
        source = inspect.getsourcefile(module)
    except TypeError:  # a built-in module
        source = None
    if source is None:
        raise PluginError(
            f"{path}: the module has no source file, so a changed one could not be noticed; name a Python module"
        )
    return hashlib.sha256(Path(source).read_bytes()).hexdigest()


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
