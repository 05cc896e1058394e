"""A backend of a person's own package, by import path: a runtime that starts our runner, or a pool of machines from somewhere else
(docs/extending/backends.md)."""

from __future__ import annotations

import inspect
from typing import Any

from etude.core.plugins import PluginError, import_object
from etude.sandbox import interpreter
from etude.sandbox.errors import InfraError, Unsupported
from etude.sandbox.launch.launcher import Launcher
from etude.sandbox.local_pool import LocalPool
from etude.sandbox.protocol import SandboxPool
from etude.sandbox.settings import SandboxSettings

_RUNTIME = ("backend", "isolation", "end_signal", "drops_root", "egress", "becomes_native")
_RUNTIME_METHODS = ("group_spec", "place", "leftovers", "launch", "close")
_POOL_METHODS = ("create", "restore", "list", "reap", "stats", "close", "probe")


def custom_backend(path: str) -> Any:
    """The runtime's class or the function that opens a pool. Raises PluginError for what is neither."""
    found: Any = import_object(path)
    if not callable(found):
        raise PluginError(
            f"{path} is {type(found).__name__}; a backend is a runtime's class or `async def open_pool(settings)` "
            "(docs/extending/backends.md)"
        )
    if isinstance(found, type) and (lacking := _lacking(found, _RUNTIME, _RUNTIME_METHODS)):
        raise PluginError(f"{path} lacks {', '.join(lacking)}; a runtime follows IsolationRuntime (sandbox/launch)")
    return found


async def open_custom(settings: SandboxSettings) -> SandboxPool:
    """The pool of the backend that the settings name by import path. Raises Unsupported, PluginError."""
    path = settings.backend
    found = custom_backend(path)
    try:
        return await _opened(settings, found)
    except (InfraError, PluginError):
        raise
    except Exception as error:  # a person's code may raise anything
        raise Unsupported(f"back end {path} can't be opened: {type(error).__name__}: {error}") from error


async def _opened(settings: SandboxSettings, found: Any) -> SandboxPool:
    path = settings.backend
    if inspect.iscoroutinefunction(found):
        pool: Any = await found(settings)
        if lacking := _lacking(pool, (), _POOL_METHODS):
            raise PluginError(
                f"{path} gave {type(pool).__name__}, which lacks {', '.join(lacking)}; it has to be a SandboxPool"
            )
        return pool
    python = interpreter.find()
    runtime: Any = found(python)
    if lacking := _lacking(runtime, _RUNTIME, _RUNTIME_METHODS):
        raise PluginError(
            f"{path} gave {type(runtime).__name__}, which lacks {', '.join(lacking)}; it has to be an IsolationRuntime"
        )
    return await LocalPool.open(settings, Launcher(runtime, python), f"asked for by sandbox.backend = {path}")


def _lacking(found: object, attributes: tuple[str, ...], methods: tuple[str, ...]) -> list[str]:
    """An attribute that only its instances have counts as there."""
    annotated = getattr(found, "__annotations__", {})
    absent = [name for name in attributes if not hasattr(found, name) and name not in annotated]
    return absent + [f"{name}()" for name in methods if not callable(getattr(found, name, None))]
