"""Objects by their import path (`module:name`): how a package reaches an implementation that is in a higher package or in a person's own module.

The package that defines an extension point knows only its protocol. A person's module has to be installed or below PYTHONPATH, which stages and
Ray's processes inherit.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

_IMPORT_PATH = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
# Files of a package that its digest covers. Compiled files and large data are left out.
_SOURCES = frozenset({".py", ".pyi", ".md", ".toml", ".json", ".txt", ".yaml", ".yml"})


class PluginError(ValueError):
    """An import path that leads to no object. Says which, and why."""


def is_import_path(text: str) -> bool:
    """Whether a setting names an object of a module and no built-in choice."""
    return _IMPORT_PATH.fullmatch(text) is not None


def require_import_paths(paths: Iterable[str]) -> None:
    """Raises ValueError for a text that is no import path."""
    for path in paths:
        if not is_import_path(path):
            raise ValueError(f"{path!r} is no import path; write module:name, as in my_package.my_module:my_object")


def source_digest(path: str) -> str:
    """The sha256, in hex, of the source of an import path: its module's file, or the files of the package that holds the module. Raises
    PluginError where there is no such file."""
    import_object(path)
    return module_digest(path.partition(":")[0])


def module_digest(name: str) -> str:
    """As `source_digest`, of a module by its name."""
    try:
        source = inspect.getsourcefile(importlib.import_module(name))
    except TypeError:  # a built-in module
        source = None
    if source is None:
        raise PluginError(
            f"the module {name} has no source file, so a changed one could not be noticed; name a Python module"
        )
    package = getattr(importlib.import_module(name.partition(".")[0]), "__file__", None)
    if package is None or not Path(package).name.startswith("__init__."):
        return hashlib.sha256(Path(source).read_bytes()).hexdigest()
    return _tree_digest(Path(package).parent)


def source_digests(paths: Iterable[str]) -> dict[str, str]:
    """The digest of each import path's source. Raises PluginError."""
    return {path: source_digest(path) for path in paths}


def _tree_digest(package: Path) -> str:
    """Names and bytes of a package's source and data files; a helper module decides as much as the module that was named."""
    digest = hashlib.sha256()
    for file in sorted(file for file in package.rglob("*") if file.suffix in _SOURCES and file.is_file()):
        data = file.read_bytes()
        digest.update(f"{file.relative_to(package).as_posix()} {len(data)} ".encode() + data)
    return digest.hexdigest()


def import_object(path: str) -> Any:
    """The object at an import path, as "package.module:name". Raises PluginError."""
    module, _, name = path.partition(":")
    if not module or not name:
        raise PluginError(f"{path!r} is no import path; write module:name, as in my_package.my_module:MyClass")
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise PluginError(
            f"{path}: the module {module} can't be imported: {error}; install it, or add its folder to PYTHONPATH"
        ) from error
    except Exception as error:  # a person's module may raise anything
        raise PluginError(f"{path}: the module {module} can't be imported: {type(error).__name__}: {error}") from error
    try:
        for part in name.split("."):
            found = getattr(found, part)
    except AttributeError as error:
        raise PluginError(f"{path}: the module {module} has no {name}") from error
    return found
