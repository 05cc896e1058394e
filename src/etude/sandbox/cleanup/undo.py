"""How one thing is undone. Each kind is idempotent: what is gone already is no error, what won't go is `CleanupError` with the reason.

A guard checks every path before it is removed: one of the last two parts of the path must begin with our name, so that a ledger that was damaged, or
an entry made in error, never costs anybody's folder.
"""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

from etude.sandbox.cleanup import groups
from etude.sandbox.cleanup.errors import CleanupError
from etude.sandbox.cleanup.process import ProcessIdentity

KILL_PATIENCE_S = 5.0  # a killed process is gone in ms, unless it hangs in the kernel
HELPERS_GRACE_S = 3.0  # podman cleans up after a container in 0.2 s on a quiet machine
COMMAND_PATIENCE_S = 30.0  # podman takes 0.3 s on a quiet machine
_RACES = 20  # lost to somebody else who changes the same folder
_OURS = ("etude", ".etude")


class Undo(Protocol):
    """`lasts`: whether the thing outlives a reboot."""

    kind: ClassVar[str]
    outlives_reboot: ClassVar[bool]

    def line(self) -> list[Any]: ...
    def undo(self) -> None:
        """Raises Stuck."""
        ...


@dataclass(frozen=True)
class KillProcess:
    pid: int
    start_ticks: int
    kind: ClassVar[str] = "process"
    outlives_reboot: ClassVar[bool] = False

    @classmethod
    def of(cls, pid: int) -> KillProcess | None:
        """None for one that is gone."""
        process = ProcessIdentity.of(pid)
        return None if process is None else cls(process.pid, process.start_ticks)

    def line(self) -> list[Any]:
        return [self.kind, self.pid, self.start_ticks]

    def undo(self) -> None:
        try:
            gone = ProcessIdentity(self.pid, self.start_ticks).kill(KILL_PATIENCE_S)
        except PermissionError:
            raise CleanupError(f"process {self.pid} is another user's; reap as that user, or as root") from None
        if not gone:
            raise CleanupError(
                f"process {self.pid} does not die within {KILL_PATIENCE_S} s of SIGKILL: it hangs in the kernel"
            )


@dataclass(frozen=True)
class RemoveGroup:
    """A control group with all below it, and every process in them."""

    path: str
    kind: ClassVar[str] = "group"
    outlives_reboot: ClassVar[bool] = False

    def line(self) -> list[Any]:
        return [self.kind, self.path]

    def undo(self) -> None:
        groups.remove(_own_path(self.path), KILL_PATIENCE_S)


@dataclass(frozen=True)
class RemoveFolder:
    """A folder with all in it; mounts below it are taken off first."""

    path: str
    kind: ClassVar[str] = "folder"
    outlives_reboot: ClassVar[bool] = True

    def line(self) -> list[Any]:
        return [self.kind, self.path]

    def undo(self) -> None:
        path = _own_path(self.path)
        for last in (False,) * _RACES + (True,):
            if not path.is_dir() or path.is_symlink():
                return
            detach_mounts_below(path)
            try:
                shutil.rmtree(path)  # follows no link
            except OSError as error:
                # Somebody else removes or still adds to it, such as the owner's last thread: what it left is next.
                if last or error.errno not in (errno.ENOENT, errno.ENOTEMPTY):
                    raise CleanupError(f"folder {path}: {error}") from None


@dataclass(frozen=True)
class RemoveFile:
    """A file, such as a claim or a hold."""

    path: str
    kind: ClassVar[str] = "file"
    outlives_reboot: ClassVar[bool] = True

    def line(self) -> list[Any]:
        return [self.kind, self.path]

    def undo(self) -> None:
        try:
            _own_path(self.path).unlink(missing_ok=True)
        except OSError as error:
            raise CleanupError(f"file {self.path}: {error.strerror}") from None


@dataclass(frozen=True)
class RunCommand:
    """What only another program can undo, such as a container; it must end with 0 also when nothing is left."""

    argv: tuple[str, ...]
    env: tuple[tuple[str, str], ...] = ()
    kind: ClassVar[str] = "command"
    outlives_reboot: ClassVar[bool] = False

    def line(self) -> list[Any]:
        return [self.kind, list(self.argv), dict(self.env)]

    def undo(self) -> None:
        said = f"`{' '.join(self.argv)}`"
        try:
            done = subprocess.run(
                self.argv,
                env={"PATH": os.environ.get("PATH", os.defpath), **dict(self.env)},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=COMMAND_PATIENCE_S,
                cwd="/",
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise CleanupError(f"{said}: {error}") from None
        if done.returncode:
            raise CleanupError(
                f"{said} ended with {done.returncode}: {done.stderr.decode(errors='replace').strip()[:500]}"
            )


@dataclass(frozen=True)
class UnknownUndo:
    """What another version of us wrote: not ours to judge, and not to be lost."""

    words: tuple[Any, ...]
    kind: ClassVar[str] = "unknown"
    outlives_reboot: ClassVar[bool] = True

    def line(self) -> list[Any]:
        return list(self.words)

    def undo(self) -> None:
        raise CleanupError(
            f"{self.line()!r} is no way of undoing that is known here; reap with the version that wrote it"
        )


@dataclass(frozen=True)
class EndHelpers:
    """Processes that work for a folder; see `tenants`."""

    path: str
    kind: ClassVar[str] = "tenants"
    outlives_reboot: ClassVar[bool] = False

    def line(self) -> list[Any]:
        return [self.kind, self.path]

    def undo(self) -> None:
        end_helpers(str(_own_path(self.path)), HELPERS_GRACE_S, KILL_PATIENCE_S)


# The order in which one entry's things are undone: first what runs, last what it stood on.
ORDER = ("process", "command", "tenants", "group", "folder", "file", "unknown")


def parse(line: list[Any]) -> Undo:
    match line:
        case ["process", int(pid), int(start)]:
            return KillProcess(pid, start)
        case ["group", str(path)]:
            return RemoveGroup(path)
        case ["tenants", str(path)]:
            return EndHelpers(path)
        case ["folder", str(path)]:
            return RemoveFolder(path)
        case ["file", str(path)]:
            return RemoveFile(path)
        case ["command", [str(), *_] as argv, dict(env)]:
            return RunCommand(tuple(map(str, argv)), tuple(env.items()))
    return UnknownUndo(tuple(line))


def _own_path(path: str) -> Path:
    if not path.startswith("/") or os.path.normpath(path) != path:
        raise CleanupError(f"{path!r} is not an absolute, plain path; left alone")
    if not any(part.startswith(_OURS) for part in path.split("/")[2:][-2:]):
        raise CleanupError(f"{path} is not ours by its name (etude…); left alone")
    return Path(path)


# Mounts are detached before a folder is removed, so that the removal never reaches into another file system.

_MNT_DETACH, _UMOUNT_NOFOLLOW = 2, 8
_TABLE = Path("/proc/self/mountinfo")


def mounts_below(folder: Path, table: Path = _TABLE) -> list[str]:
    """Mount points at or below it, the deepest first."""
    prefix = f"{os.path.realpath(folder)}/"
    points = [_unescaped(line.split()[4]) for line in table.read_text().splitlines()]
    return sorted((point for point in points if f"{point}/".startswith(prefix)), key=len, reverse=True)


def detach_mounts_below(folder: Path) -> None:
    """Raises Stuck."""
    points = mounts_below(folder)
    if not points:
        return
    libc = ctypes.CDLL(None, use_errno=True)
    for point in points:
        if libc.umount2(os.fsencode(point), _MNT_DETACH | _UMOUNT_NOFOLLOW):
            raise CleanupError(f"mount {point} can't be taken off: {os.strerror(ctypes.get_errno())}")


def _unescaped(word: str) -> str:
    """The kernel writes blanks, tabs, line ends and backslashes as \\ooo."""
    head, *parts = word.split("\\")
    return head + "".join(chr(int(part[:3], 8)) + part[3:] for part in parts)


# Helpers are processes that work for a folder, such as a container engine's. Each leaves its parent on purpose, so no list of
# children contains it. A helper is known by what it was given: the folder as its home, its runtime directory or its `--root`.
# A shell that has the folder as its working directory, or a command that names it, is no helper.

_VARIABLES = (b"HOME=", b"XDG_RUNTIME_DIR=")
_PAUSE_S = 0.02


def helpers_of(folder: str) -> list[ProcessIdentity]:
    place = os.fsencode(folder)
    everybody = (ProcessIdentity.of(int(name)) for name in os.listdir("/proc") if name.isdigit())
    return [process for process in everybody if process is not None and _works_for(process, place)]


def end_helpers(folder: str, grace_s: float, patience_s: float) -> None:
    """Wait for those that end by themselves and clean up as they do, then kill the rest. Raises Stuck."""
    end_s = time.monotonic() + grace_s
    while (left := helpers_of(folder)) and time.monotonic() < end_s:
        time.sleep(_PAUSE_S)
    for process in left:
        try:
            if not process.kill(patience_s):
                raise CleanupError(
                    f"process {process.pid}, which works for {folder}, does not die within {patience_s} s of SIGKILL"
                )
        except PermissionError:
            raise CleanupError(
                f"process {process.pid}, which works for {folder}, is another user's; reap as that user, or as root"
            ) from None


def _works_for(process: ProcessIdentity, folder: bytes) -> bool:
    try:
        words = Path(f"/proc/{process.pid}/cmdline").read_bytes().split(b"\0")
        variables = Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False  # gone, or another user's
    if any(
        _in(value.removeprefix(name), folder) for name in _VARIABLES for value in variables if value.startswith(name)
    ):
        return True
    roots = [word.removeprefix(b"--root=") for word in words if word.startswith(b"--root=")]
    roots += [after for word, after in zip(words, words[1:], strict=False) if word == b"--root"]
    return any(_in(root, folder) for root in roots)


def _in(path: bytes, folder: bytes) -> bool:
    return path == folder or path.startswith(folder + b"/")
