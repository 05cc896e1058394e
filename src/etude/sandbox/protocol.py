"""The interface of sandboxes (terms of `docs/glossary.md`): pool, sandbox, process. Values are in `spec`, failures in `errors`."""

from __future__ import annotations

import builtins
import socket
from collections.abc import AsyncIterator
from typing import Protocol

from etude.sandbox.egress.decisions import Decision
from etude.sandbox.errors import SandboxError
from etude.sandbox.spec import (
    Capabilities,
    ExecResult,
    FileChange,
    FileEntry,
    Network,
    OutputChunk,
    PoolStats,
    SandboxSpec,
    ServiceStatus,
    SnapshotRef,
    State,
    TerminalSize,
)


class Operations(Protocol):
    """What can be done with a machine's files and commands: a sandbox's, or a folder of this machine's. Relative paths start at the
    spec's workdir."""

    spec: SandboxSpec

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
        """Run to completion (a str runs under /bin/sh -c). On time-out all its processes are killed and `timed_out` set.

        `warm=True` with argv[0] "python": the sandbox's own interpreter forks and runs the script (or -c code), which
        saves an interpreter start; isolation between runs is that of a process.
        """
        ...

    async def read(self, path: str, *, max_bytes: int = 1 << 20, offset: int = 0) -> bytes: ...
    async def write(self, path: str, data: bytes, *, mode: int | None = None) -> None:
        """Whole or not at all; missing folders are made. Without a mode the file's own stays, and a new file gets 0o644."""
        ...

    async def list(self, path: str = ".", *, recursive: bool = True, max_entries: int = 10_000) -> list[FileEntry]: ...
    async def remove(self, path: str) -> None: ...
    async def export(self, path: str = ".", *, max_bytes: int = 16 << 20) -> dict[str, bytes]:
        """All regular files under `path` that can be read (links, devices and what has a mode against it left out), relative paths."""
        ...


class Disposable(Operations, Protocol):
    """A machine of one's own that can be thrown away: all that tasks and rollouts need of a sandbox."""

    id: str

    async def kill(self) -> None:
        """Idempotent; returns when every process inside is gone."""
        ...


class Process(Protocol):
    """A running command. Its output waits inside until it is read (bounded; then the command blocks)."""

    def stream(self) -> AsyncIterator[OutputChunk]:
        """Output as it comes, until the command has ended. Once only."""
        ...

    async def write(self, data: bytes) -> None:
        """To its stdin. Waits while the command doesn't read. Raises UserError after its end or without an open stdin."""
        ...

    async def close_stdin(self) -> None: ...
    async def resize(self, size: TerminalSize) -> None: ...
    async def signal(self, number: int) -> None:
        """To every process of the command. No error after its end."""
        ...

    async def wait(self) -> ExecResult:
        """Its end. What `stream` has not taken is in `out` and `err`, head and tail kept within the limit."""
        ...


class Sandbox(Disposable, Protocol):
    """One live sandbox. All paths are inside it."""

    @property
    def state(self) -> State: ...
    @property
    def deadline_s(self) -> float | None:
        """Seconds left until its ttl ends it; None: no end."""
        ...

    async def exec(
        self,
        argv: list[str] | str,
        *,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        user: str | None = None,
        timeout_s: float | None = None,
        stdin: bytes | None = b"",
        tty: TerminalSize | None = None,
        max_output_bytes: int = 1 << 20,
    ) -> Process:
        """Start a command. stdin=None keeps it open for `write`. `user`: a name or number, where the spec's uid_mode has more than one."""
        ...

    async def stat(self, path: str) -> FileEntry: ...
    async def put_tar(self, path: str, archive: bytes) -> None:
        """Unpack below a folder. Names that lead outside, devices and links out of it are refused before anything is written."""
        ...

    async def get_tar(self, path: str = ".", *, max_bytes: int = 64 << 20) -> bytes:
        """Files, folders and links under `path` as an archive in a fixed order."""
        ...

    async def snapshot(self, name: str = "", *, memory: bool = False) -> SnapshotRef:
        """Freeze the files as they are at one moment; processes are part of it only with `memory`."""
        ...

    async def fork(self, n: int = 1, *, memory: bool = False) -> list[Sandbox | SandboxError]:
        """n children over one frozen moment of this one's files; each fails on its own."""
        ...

    async def diff(self, since: SnapshotRef | None = None) -> list[FileChange]:
        """What changed since a snapshot, or since its birth."""
        ...

    async def git_patch(self, since: SnapshotRef | None = None) -> bytes:
        """The same below the workdir, as `git apply` takes it; binary files too."""
        ...

    async def pause(self) -> None: ...
    async def resume(self) -> None: ...
    async def set_network(self, network: Network) -> None:
        """Takes effect at once: what a narrower policy forbids is cut, established or not."""
        ...

    @property
    def decisions(self) -> builtins.list[Decision]:
        """The last ones at its door: what it asked of the outside, and what became of it."""
        ...

    async def connect(self, port: int) -> socket.socket:
        """A stream to what listens on the sandbox' own loopback; the caller closes it."""
        ...

    async def services(self) -> list[ServiceStatus]: ...
    async def heartbeat(self) -> None:
        """A use that does nothing: an idle sandbox whose agent thinks stays."""
        ...

    async def extend(self, ttl_s: float) -> None:
        """It now ends this long from now."""
        ...


class SandboxPool(Protocol):
    """Makes sandboxes. Closing it kills all it made; a client's death does the same (control-socket EOF)."""

    async def create(self, spec: SandboxSpec, *, key: str | None = None) -> Sandbox:
        """`key`: the same one twice gives the same sandbox, while it lives."""
        ...

    async def restore(self, snapshot: SnapshotRef, spec: SandboxSpec, n: int = 1) -> list[Sandbox | SandboxError]:
        """n sandboxes over a snapshot's files; the spec's own `files` come on top."""
        ...

    def list(self, labels: dict[str, str] | None = None) -> list[Sandbox]: ...
    async def reap(self) -> list[str]:
        """End and remove what has no holder: sandboxes past their time here, and those of owners that died. Idempotent; returns what it removed."""
        ...

    def stats(self) -> PoolStats: ...
    async def close(self) -> None: ...
    def probe(self) -> Capabilities: ...


class Machines(Protocol):
    """A source of disposable machines: a pool, or a substitute for one."""

    async def create(self, spec: SandboxSpec) -> Disposable: ...
    async def close(self) -> None: ...
    def probe(self) -> Capabilities: ...
