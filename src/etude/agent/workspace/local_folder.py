"""A folder of this machine as `Operations`: the person's own repository. No isolation whatever; that is the sandbox room's.

Promises: no path leads out of the folder, also through links, unless it is among those allowed; a file is replaced whole or not at
all and keeps its mode; what a command leaves behind on a time-out is nothing.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from etude.agent.workspace.bounded_file import is_inside, read_regular
from etude.agent.workspace.environment import NO_BYTECODE, without_keys
from etude.agent.workspace.local_process import Background, run_process
from etude.agent.workspace.operations import OUTPUTS_FOLDER, PathOutside
from etude.sandbox.errors import DiskFull, OutputLimit, UserError
from etude.sandbox.inside.leftover import VARIABLE
from etude.sandbox.spec import ExecResult, FileEntry, SandboxSpec

_NEW_FILE_MODE = 0o644
# Deeper than any repository; bounds the walk of a hostile tree.
_MAX_DEPTH = 128


class LocalFolder:
    """`allowed`: other folders that may be read and written. `env`: what commands get, else this process' own without its keys."""

    def __init__(
        self, root: str | Path, *, allowed: Sequence[str | Path] = (), env: Mapping[str, str] | None = None
    ) -> None:
        path = os.path.realpath(root)
        if not os.path.isdir(path):
            raise UserError(f"{root} is not a folder; give the folder to work in")
        if not os.access(path, os.R_OK | os.X_OK):
            raise UserError(f"{root} can't be read by this user; change its mode or work elsewhere")
        self.id = "local"
        self.spec = SandboxSpec(workdir=path)
        self._env = {**NO_BYTECODE, **(without_keys(os.environ) if env is None else env)}
        self._allowed = [path, *(os.path.realpath(folder) for folder in allowed)]
        self._background = Background()
        self._outputs: tempfile.TemporaryDirectory[str] | None = None

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
        """As a sandbox does; `warm` Python is the one that runs this."""
        words = ["/bin/sh", "-c", argv] if isinstance(argv, str) else list(argv)
        if not words or timeout_s <= 0 or max_output_bytes < 0:
            raise UserError(f"run needs a command, a time and an output limit, got {argv!r}, {timeout_s} s")
        if any("\0" in word for word in words):
            raise UserError(f"a command can't hold a zero byte: {words!r}")
        if warm and words[0] == "python":
            words[0] = sys.executable
        variables = {**self._env, "OUTPUTS": self._outputs_folder(), **(env or {})}
        if left := variables.get(VARIABLE):
            variables[VARIABLE] = self._resolve(left)
        return await run_process(
            words,
            cwd=os.path.join(self.spec.workdir, cwd or ""),
            env=variables,
            background=self._background,
            timeout_s=timeout_s,
            stdin=stdin,
            max_output_bytes=max_output_bytes,
        )

    async def read(self, path: str, *, max_bytes: int = 1 << 20, offset: int = 0) -> bytes:
        return await asyncio.to_thread(read_regular, self._resolve(path), max_bytes, offset)

    async def write(self, path: str, data: bytes, *, mode: int | None = None) -> None:
        await asyncio.to_thread(_write, self._resolve(path), data, mode)

    async def list(self, path: str = ".", *, recursive: bool = True, max_entries: int = 10_000) -> list[FileEntry]:
        return await asyncio.to_thread(_list, self._resolve(path), recursive, max_entries)

    async def remove(self, path: str) -> None:
        """A link itself, never what it leads to."""
        folder, name = os.path.split(os.path.normpath(os.path.join(self.spec.workdir, path)))
        target = os.path.join(self._resolve(folder), name)
        await asyncio.to_thread(
            shutil.rmtree if os.path.isdir(target) and not os.path.islink(target) else os.unlink, target
        )

    async def export(self, path: str = ".", *, max_bytes: int = 16 << 20) -> dict[str, bytes]:
        return await asyncio.to_thread(_export, self._resolve(path), max_bytes)

    async def kill(self) -> None:
        """What commands left running ends; the kept outputs go."""
        try:
            await self._background.end()
        finally:
            if self._outputs is not None:
                await asyncio.to_thread(self._outputs.cleanup)
                self._outputs = None

    def _outputs_folder(self) -> str:
        """Made when first needed; goes with `kill`, or with this process."""
        if self._outputs is None:
            self._outputs = tempfile.TemporaryDirectory(prefix="etude-outputs-", ignore_cleanup_errors=True)
        return self._outputs.name

    def _resolve(self, path: str) -> str:
        """The real path. Raises Outside."""
        if "\0" in path:
            raise UserError(f"path {path!r} holds a zero byte")
        if path == OUTPUTS_FOLDER or path.startswith(OUTPUTS_FOLDER + "/"):
            base = self._outputs_folder()
            real = os.path.realpath(base + path[len(OUTPUTS_FOLDER) :])
            allowed = [os.path.realpath(base)]
        else:
            real = os.path.realpath(os.path.join(self.spec.workdir, path))
            allowed = self._allowed
        if not is_inside(real, allowed):
            raise PathOutside(f"{path} lies outside of {self.spec.workdir}")
        return real


def _write(path: str, data: bytes, mode: int | None) -> None:
    """Through a fresh file in the same folder; missing folders are made. Survives a crash of this process, not of the machine."""
    folder = os.path.dirname(path)
    try:
        os.makedirs(folder, exist_ok=True)
        if os.path.lexists(path):
            found = os.stat(path)
            if not stat.S_ISREG(found.st_mode):
                raise UserError(f"{path} is not a regular file")
            mode = stat.S_IMODE(found.st_mode) if mode is None else mode
        fd, fresh = tempfile.mkstemp(prefix=".etude-", dir=folder)
        try:
            with open(fd, "wb") as file:
                file.write(data)
                os.fchmod(fd, _NEW_FILE_MODE if mode is None else mode)
            os.rename(fresh, path)
        except BaseException:
            os.unlink(fresh)
            raise
    except OSError as error:
        if error.errno in (28, 122):  # ENOSPC, EDQUOT
            raise DiskFull(f"{path}: {error.strerror}") from error
        raise


def _list(path: str, recursive: bool, max_entries: int) -> list[FileEntry]:
    found: list[FileEntry] = []
    for name, status in _walk(path, "", recursive, 0):
        if len(found) >= max_entries:
            raise OutputLimit(f"{path} holds more than {max_entries} entries; list a folder below it")
        kinds = ((stat.S_ISREG, "file"), (stat.S_ISDIR, "dir"), (stat.S_ISLNK, "link"))
        kind = next((word for test, word in kinds if test(status.st_mode)), "other")
        found.append(FileEntry(name, kind, status.st_size, stat.S_IMODE(status.st_mode)))  # pyright: ignore[reportArgumentType]
    return found


def _export(path: str, max_bytes: int) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    left = max_bytes
    for name, status in _walk(path, "", True, 0):
        if not stat.S_ISREG(status.st_mode):
            continue
        try:
            data = read_regular(os.path.join(path, name), left + 1, 0)
        except (FileNotFoundError, PermissionError):
            continue  # removed since it was listed, or closed to its own owner
        left -= len(data)
        if left < 0:
            raise OutputLimit(f"the files under {path} are over {max_bytes} bytes")
        found[name] = data
    return found


def _walk(folder: str, prefix: str, recursive: bool, depth: int) -> Iterator[tuple[str, os.stat_result]]:
    """Depth first, names in order, no link followed."""
    for name in sorted(os.listdir(folder)):
        full = os.path.join(folder, name)
        try:
            status = os.lstat(full)
        except FileNotFoundError:
            continue  # removed since it was listed
        yield prefix + name, status
        if recursive and stat.S_ISDIR(status.st_mode):
            if depth >= _MAX_DEPTH:
                raise UserError(f"folders nest deeper than {_MAX_DEPTH}")
            try:
                yield from _walk(full, f"{prefix}{name}/", True, depth + 1)
            except PermissionError:
                continue
