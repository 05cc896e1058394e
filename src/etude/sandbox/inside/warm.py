"""A Python program run by a fork of the interpreter that is already there: no exec, so ~2 ms instead of ~20.

Sees what `python script.py` would: argv, sys.path, `__main__`, exit codes, tracebacks that begin in its own code. Differences, by
design: the site module is not run (no site-packages), and the modules of `PRELOAD` are loaded already.
"""

from __future__ import annotations

import atexit
import builtins
import gc
import io
import os
import sys
import types

TYPE_CHECKING = False  # as in `typing`, without importing it: every import makes each fork slower
if TYPE_CHECKING:
    from typing import Any

# Standard modules that small programs import. Few: every page of the zygote makes each fork slower (unittest alone: +0.4 ms).
PRELOAD = ("bisect", "collections", "functools", "heapq", "itertools", "math", "operator", "re", "string")
_HERE = __file__
# Modules taken out of programs' sight; kept, because freeing them would touch every page they lie on.
_kept: list[types.ModuleType] = []


def dress(environment: dict[str, str]) -> None:
    """In the zygote, once: whatever a program must find as in a fresh interpreter and that need not wait for the program.

    A page fault costs 4 us on a virtual machine; done after the fork, this alone was 340 of them.
    """
    for name in [name for name in sys.modules if name == "etude" or name.startswith("etude.")]:
        _kept.append(sys.modules.pop(name))
    os.environ.clear()
    os.environ.update(environment)
    sys.stdin = sys.__stdin__ = io.TextIOWrapper(io.BufferedReader(io.FileIO(0, closefd=False)), "utf-8")
    sys.stdout = sys.__stdout__ = _writer(1, "strict")
    sys.stderr = sys.__stderr__ = _writer(2, "backslashreplace", line_buffering=True)
    for name in ("exit", "quit"):
        setattr(builtins, name, sys.exit)
    sys.path_importer_cache.clear()


def expect(folder: str) -> None:
    """Have the importer of a program's folder ready; it looks at the folder when it is asked, not now."""
    sys.path_importer_cache[folder] = sys.path_hooks[-1](folder)


def arguments(argv: list[str], folder: str, environment: dict[str, str]) -> tuple[list[str], list[str]]:
    """sys.argv and what goes before the standard sys.path, worked out by the runner (its pages are its own)."""
    if argv[1] == "-c":
        own, first = ["-c", *argv[3:]], ""
    elif argv[1] == "-m":
        own, first = argv[2:], folder
    else:
        own, first = argv[1:], os.path.dirname(os.path.join(folder, argv[1]))
    extra = environment.get("PYTHONPATH", "")
    return own, [os.path.normpath(first) if first else "", *(path for path in extra.split(":") if path)]


def run(argv: list[str], own: list[str], path: list[str], environment: dict[str, str]) -> None:
    """Never returns. `own` and `path` are from `arguments`; `environment` holds the command's additions. Called on an almost empty
    stack, so that nothing of the runner is reachable from the program's frames."""
    code = 1
    try:
        gc.enable()
        if environment:
            os.environ.update(environment)
        sys.argv, sys.orig_argv, sys.path[:0] = own, argv, path
        code = _execute(argv)
    except BaseException as error:  # noqa: BLE001 - this is the program's top level
        sys.excepthook(type(error), error, error.__traceback__)
    os._exit(_finish(code))


def _writer(fd: int, errors: str, line_buffering: bool = False) -> io.TextIOWrapper:
    raw = io.BufferedWriter(io.FileIO(fd, "w", closefd=False))
    return io.TextIOWrapper(raw, "utf-8", errors, write_through=False, line_buffering=line_buffering)


def _execute(argv: list[str]) -> int:
    kind = argv[1]
    main = types.ModuleType("__main__")
    sys.modules["__main__"] = main
    names: dict[str, Any] = main.__dict__
    names["__builtins__"] = builtins
    try:
        if kind == "-m":
            import runpy

            runpy._run_module_as_main(argv[2])  # type: ignore[attr-defined]
        elif kind == "-c":
            exec(compile(argv[2], "<string>", "exec"), names)
        else:
            path = os.path.abspath(kind)
            names["__file__"], names["__cached__"] = path, None
            exec(compile(_source(path), path, "exec"), names)
    except SystemExit as leave:
        return _exit_code(leave.code)
    except BaseException as error:  # noqa: BLE001 - this is the program's top level
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename == _HERE:
            trace = trace.tb_next
        sys.excepthook(type(error), error.with_traceback(trace), trace)
        return 130 if isinstance(error, KeyboardInterrupt) else 1
    return 0


def _source(path: str) -> bytes:
    try:
        with io.open_code(path) as file:
            return file.read()
    except OSError as error:
        print(f"python: can't open file {path!r}: [Errno {error.errno}] {error.strerror}", file=sys.stderr)
        raise SystemExit(2) from None


def _exit_code(code: object) -> int:
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    print(code, file=sys.stderr)
    return 1


def _finish(code: int) -> int:
    """What interpreter shutdown does before it frees memory: threads joined, exit functions run, streams flushed."""
    try:
        if (threading := sys.modules.get("threading")) is not None:
            threading._shutdown()
        atexit._run_exitfuncs()
    except BaseException as error:  # noqa: BLE001 - an exit function may do anything
        sys.excepthook(type(error), error, error.__traceback__)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            code = code or 120  # what CPython returns when stdout can't be flushed
    return code
