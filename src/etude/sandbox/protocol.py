"""The one interface of the sandbox room (names of `docs/design.md`): pool, sandbox, results, typed errors."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, Protocol

Isolation = Literal["process", "namespace", "gvisor", "vm"]


WORKDIR = "/work"  # inside every sandbox, unless a spec says otherwise


@dataclass(frozen=True)
class SandboxSpec:
    """What a sandbox must be. Anything a back end can't give is refused at create with `Unsupported`, never downgraded."""

    workdir: str = WORKDIR
    files: dict[str, bytes] = field(
        default_factory=dict
    )  # relative to workdir; written before the sandbox is handed out
    env: dict[str, str] = field(default_factory=dict)
    memory_mb: int = 512
    pids: int = 64
    disk_mb: int = 64
    network: Literal["none", "host"] = "none"  # host: the machine's own, only around a folder
    isolation_min: Isolation = (
        "process"  # nothing beyond what the back end in the settings gives; "process" is never chosen unasked
    )
    read_only_binds: tuple[tuple[str, str], ...] = ()  # (host path, path inside), e.g. a package folder for tests
    labels: dict[str, str] = field(default_factory=dict)
    # A folder of the host to work in, read-write under its own path; the rest of the host is then in sight, read-only (folder.py).
    folder: str = ""
    hidden: tuple[str, ...] = ()  # around a folder: paths of the host to cover, beside those of folder.SECRETS


@dataclass(frozen=True)
class ExecResult:
    """How a command ended. `rc` is the exit status; a signal death has `signal` set and rc = 128 + signal."""

    rc: int
    out: bytes
    err: bytes
    truncated: bool = False
    timed_out: bool = False
    oom: bool = False
    signal: int | None = None
    duration_s: float = 0.0


@dataclass(frozen=True)
class Entry:
    """One file system entry, path relative to the folder that was listed."""

    path: str
    kind: Literal["file", "dir", "link", "other"]
    size_bytes: int
    mode: int


@dataclass(frozen=True)
class Capabilities:
    """What a back end can do here, each value found by doing it, never by looking for a file."""

    backend: str
    isolation: Isolation
    available: bool
    reason: str = ""
    limits: str = "rlimits"
    warm_python: bool = True


class SandboxError(Exception):
    """Base of all sandbox errors."""


class UserError(SandboxError):
    """The inside's or the caller's doing (bad path, too large a file): evidence, not a fault of ours."""


class ExecTimeout(UserError): ...


class OOMKilled(UserError): ...


class PidsExhausted(UserError): ...


class DiskFull(UserError): ...


class OutputLimit(UserError): ...


class InfraError(SandboxError):
    """Ours. Never a reward; retried while `retryable`."""

    retryable = True


class SandboxDied(InfraError): ...


class SandboxNotFound(InfraError): ...


class CapacityExhausted(InfraError):
    def __init__(self, message: str, retry_after_s: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class Unsupported(InfraError):
    """A demand this back end can't meet here; says which and what to do."""

    retryable = False


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

    async def list(self, path: str = ".", *, recursive: bool = True, max_entries: int = 10_000) -> list[Entry]: ...
    async def remove(self, path: str) -> None: ...
    async def export(self, path: str = ".", *, max_bytes: int = 16 << 20) -> dict[str, bytes]:
        """All regular files under `path` that can be read (links, devices and what has a mode against it left out), relative paths."""
        ...


class Sandbox(Operations, Protocol):
    """One live sandbox. All paths are inside it."""

    id: str

    async def kill(self) -> None:
        """Idempotent; returns when every process inside is gone."""
        ...


class SandboxPool(Protocol):
    """Makes sandboxes. Closing it kills all it made; a client's death does the same (control-socket EOF)."""

    async def create(self, spec: SandboxSpec) -> Sandbox: ...
    async def close(self) -> None: ...
    def probe(self) -> Capabilities: ...
