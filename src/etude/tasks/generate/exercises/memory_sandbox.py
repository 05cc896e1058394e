"""An exercise's workspace in memory, as a Sandbox: the real harness runs on it, without any isolation or process.

For demonstrations in learning experiments and for property tests: same tools, same strings as in a real sandbox. It runs
only `python check.py`, in this process and under a step guard, so it is for scripted policies, never for a model's code.
"""

from __future__ import annotations

import builtins
import sys
import traceback
from types import ModuleType
from typing import Any

from etude.sandbox.errors import Unsupported, UserError
from etude.sandbox.spec import ExecResult, FileEntry, SandboxSpec
from etude.tasks.generate.exercises.trial import Guard, Runaway, compile_source

# A check runs some twenty calls of under 50 steps each; only a loop gets this far.
MAX_CHECK_STEPS = 20_000


class MemorySandbox:
    """Files in a dict. `run` knows `python FILE` and nothing else."""

    def __init__(self, files: dict[str, str]) -> None:
        self.id = "memory"
        self.spec = SandboxSpec(files={path: text.encode() for path, text in files.items()})
        self._files = dict(self.spec.files)

    @property
    def files(self) -> dict[str, str]:
        """The files as they are now."""
        return {path: data.decode() for path, data in self._files.items()}

    async def run(
        self,
        argv: list[str] | str,
        *,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_s: float = 10.0,
        stdin: bytes = b"",
        max_output_bytes: int = 65536,
        warm: bool = False,
    ) -> ExecResult:
        if isinstance(argv, str) or len(argv) != 2 or argv[0] != "python":
            raise Unsupported(f"a memory sandbox runs ['python', FILE] only, not {argv!r}; use a real sandbox")
        if argv[1] not in self._files:
            return ExecResult(2, b"", f"can't open file {argv[1]!r}\n".encode())
        return run_script(self.files, argv[1])

    async def read(self, path: str, *, max_bytes: int = 1 << 20, offset: int = 0) -> bytes:
        if path not in self._files:
            raise UserError(f"no file {path}")
        return self._files[path][offset : offset + max_bytes]

    async def write(self, path: str, data: bytes, *, mode: int | None = None) -> None:
        self._files[path] = data

    async def list(self, path: str = ".", *, recursive: bool = True, max_entries: int = 10_000) -> list[FileEntry]:
        return [FileEntry(name, "file", len(data), 0o644) for name, data in sorted(self._files.items())]

    async def remove(self, path: str) -> None:
        self._files.pop(path, None)

    async def export(self, path: str = ".", *, max_bytes: int = 16 << 20) -> dict[str, bytes]:
        return dict(self._files)

    async def kill(self) -> None:
        """Nothing runs."""


def run_script(files: dict[str, str], path: str) -> ExecResult:
    """Runs `path` with imports served from `files`, as `python path` would in their folder; a loop counts as time-out."""
    printed: list[str] = []
    modules: dict[str, ModuleType] = {}

    def load(name: str, *args: Any) -> ModuleType:
        if f"{name}.py" not in files:
            return builtins.__import__(name, *args)
        if name not in modules:
            module = ModuleType(name)
            vars(module)["__builtins__"] = inside
            exec(compile_source(files[f"{name}.py"], f"<exercise>/{name}.py"), vars(module))
            modules[name] = module
        return modules[name]

    def show(*values: Any, end: str = "\n") -> None:
        printed.append(" ".join(map(str, values)) + end)

    inside = {**vars(builtins), "__import__": load, "print": show}
    rc, problem, timed_out = 0, "", False
    try:
        with Guard("<exercise>", MAX_CHECK_STEPS):
            exec(compile_source(files[path], f"<exercise>/{path}"), {"__builtins__": inside, "__name__": "__main__"})
    except SystemExit as end:
        rc = end.code if isinstance(end.code, int) else int(end.code is not None)
    except Runaway:
        rc, timed_out = 137, True
    except Exception:  # noqa: BLE001 - what an interpreter would report
        rc, problem = 1, "".join(traceback.format_exception_only(*sys.exc_info()[:2]))
    return ExecResult(rc, "".join(printed).encode(), problem.encode(), timed_out=timed_out)
