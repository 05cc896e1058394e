"""How one thing is undone. Each kind is idempotent: what is gone already is no error, what won't go is `Stuck` with the reason.

A guard stands before what is removed by path: one of the last two parts of the path must begin with our name, so that a ledger that was damaged, or
an entry made in error, never costs anybody's folder.
"""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

from etude.sandbox.cleanup import groups, mounts, tenants
from etude.sandbox.cleanup.being import Being
from etude.sandbox.cleanup.stuck import Stuck

KILL_PATIENCE_S = 5.0  # a killed process is gone in ms, unless it hangs in the kernel
TENANTS_GRACE_S = 3.0  # podman cleans up after a container in 0.2 s on a quiet machine
COMMAND_PATIENCE_S = 30.0  # podman takes 0.3 s on a quiet machine
_RACES = 20  # lost to somebody else who changes the same folder
_OURS = ("etude", ".etude")


class Undo(Protocol):
    """`lasts`: whether the thing outlives a reboot."""

    kind: ClassVar[str]
    lasts: ClassVar[bool]

    def line(self) -> list[Any]: ...
    def undo(self) -> None:
        """Raises Stuck."""
        ...


@dataclass(frozen=True)
class Process:
    pid: int
    start_ticks: int
    kind: ClassVar[str] = "process"
    lasts: ClassVar[bool] = False

    @classmethod
    def of(cls, pid: int) -> Process | None:
        """None for one that is gone."""
        being = Being.of(pid)
        return None if being is None else cls(being.pid, being.start_ticks)

    def line(self) -> list[Any]:
        return [self.kind, self.pid, self.start_ticks]

    def undo(self) -> None:
        try:
            gone = Being(self.pid, self.start_ticks).kill(KILL_PATIENCE_S)
        except PermissionError:
            raise Stuck(f"process {self.pid} is another user's; reap as that user, or as root") from None
        if not gone:
            raise Stuck(
                f"process {self.pid} does not die within {KILL_PATIENCE_S} s of SIGKILL: it hangs in the kernel"
            )


@dataclass(frozen=True)
class Group:
    """A control group with all below it, and every process in them."""

    path: str
    kind: ClassVar[str] = "group"
    lasts: ClassVar[bool] = False

    def line(self) -> list[Any]:
        return [self.kind, self.path]

    def undo(self) -> None:
        groups.remove(_ours(self.path), KILL_PATIENCE_S)


@dataclass(frozen=True)
class Folder:
    """A folder with all in it; mounts below it are taken off first."""

    path: str
    kind: ClassVar[str] = "folder"
    lasts: ClassVar[bool] = True

    def line(self) -> list[Any]:
        return [self.kind, self.path]

    def undo(self) -> None:
        path = _ours(self.path)
        for last in (False,) * _RACES + (True,):
            if not path.is_dir() or path.is_symlink():
                return
            mounts.detach_below(path)
            try:
                shutil.rmtree(path)  # follows no link
            except OSError as error:
                # Somebody else removes or still adds to it, such as the owner's last thread: what it left is next.
                if last or error.errno not in (errno.ENOENT, errno.ENOTEMPTY):
                    raise Stuck(f"folder {path}: {error}") from None


@dataclass(frozen=True)
class File:
    """A file, such as a claim or a hold."""

    path: str
    kind: ClassVar[str] = "file"
    lasts: ClassVar[bool] = True

    def line(self) -> list[Any]:
        return [self.kind, self.path]

    def undo(self) -> None:
        try:
            _ours(self.path).unlink(missing_ok=True)
        except OSError as error:
            raise Stuck(f"file {self.path}: {error.strerror}") from None


@dataclass(frozen=True)
class Command:
    """What only another program can undo, such as a container; it must end with 0 also when nothing is left."""

    argv: tuple[str, ...]
    env: tuple[tuple[str, str], ...] = ()
    kind: ClassVar[str] = "command"
    lasts: ClassVar[bool] = False

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
            raise Stuck(f"{said}: {error}") from None
        if done.returncode:
            raise Stuck(f"{said} ended with {done.returncode}: {done.stderr.decode(errors='replace').strip()[:500]}")


@dataclass(frozen=True)
class Unknown:
    """What another version of us wrote: not ours to judge, and not to be lost."""

    words: tuple[Any, ...]
    kind: ClassVar[str] = "unknown"
    lasts: ClassVar[bool] = True

    def line(self) -> list[Any]:
        return list(self.words)

    def undo(self) -> None:
        raise Stuck(f"{self.line()!r} is no way of undoing that is known here; reap with the version that wrote it")


@dataclass(frozen=True)
class Tenants:
    """Processes that work for a folder; see `tenants`."""

    path: str
    kind: ClassVar[str] = "tenants"
    lasts: ClassVar[bool] = False

    def line(self) -> list[Any]:
        return [self.kind, self.path]

    def undo(self) -> None:
        tenants.end(str(_ours(self.path)), TENANTS_GRACE_S, KILL_PATIENCE_S)


# The order in which one entry's things are undone: first what runs, last what it stood on.
ORDER = ("process", "command", "tenants", "group", "folder", "file", "unknown")


def parse(line: list[Any]) -> Undo:
    match line:
        case ["process", int(pid), int(start)]:
            return Process(pid, start)
        case ["group", str(path)]:
            return Group(path)
        case ["tenants", str(path)]:
            return Tenants(path)
        case ["folder", str(path)]:
            return Folder(path)
        case ["file", str(path)]:
            return File(path)
        case ["command", [str(), *_] as argv, dict(env)]:
            return Command(tuple(map(str, argv)), tuple(env.items()))
    return Unknown(tuple(line))


def _ours(path: str) -> Path:
    if not path.startswith("/") or os.path.normpath(path) != path:
        raise Stuck(f"{path!r} is not an absolute, plain path; left alone")
    if not any(part.startswith(_OURS) for part in path.split("/")[2:][-2:]):
        raise Stuck(f"{path} is not ours by its name (etude…); left alone")
    return Path(path)
