"""What a sandbox must be, and the plain values that come out of one. Everything here is immutable and can be pickled."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Isolation = Literal["process", "namespace", "gvisor", "vm"]
State = Literal["running", "paused", "dead"]

WORKDIR = "/work"  # inside every sandbox, unless a spec says otherwise


@dataclass(frozen=True)
class PackageRule:
    """What of pip's or npm's index can be had: named packages (with the dependencies they need, by name), published by the end of `until`."""

    kind: Literal["pip", "npm"]
    names: tuple[str, ...]  # ("*",): every package but those of `deny`, for a build whose needs are not known yet
    until: str = ""  # "2024-05-01": that day in UTC and before; or a time of it; "": without a bound
    deny: tuple[str, ...] = ()  # never, whatever `names` says: a task's own project and its forks


@dataclass(frozen=True)
class Network:
    """Which of the world a sandbox reaches. `none`: its own loopback alone. `allowlist`: what `hosts` names, through a policed proxy on
    its loopback. `host`: the machine's own network, only around a folder of the host."""

    mode: Literal["none", "allowlist", "host"] = "none"
    hosts: tuple[
        str, ...
    ] = ()  # "index.example.org", ".example.org" (and below), "example.org:8443"; only with allowlist
    packages: tuple[PackageRule, ...] = ()  # one of each kind at most; only with allowlist


@dataclass(frozen=True)
class ServiceSpec:
    """A process next to the agent's shell, started before the sandbox is handed out and again after a restore."""

    name: str
    command: tuple[str, ...]
    files: tuple[tuple[str, bytes], ...] = ()  # what it needs, written before it starts
    health: tuple[str, ...] = ()  # a command that ends with 0 when it serves; none: it serves as soon as it runs
    env: tuple[tuple[str, str], ...] = ()
    user: str | None = None
    start_timeout_s: float = 30.0


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
    cpus: float | None = None  # cores' worth of time at most; None: no bound
    network: Network = Network()
    isolation_min: Isolation = (
        "process"  # nothing beyond what the back end in the settings gives; "process" is never chosen unasked
    )
    read_only_binds: tuple[tuple[str, str], ...] = ()  # (host path, path inside), e.g. a package folder for tests
    labels: dict[str, str] = field(default_factory=dict)
    # The root file system: "" is the host's system directories, read-only; else an image of the layer store, by name or digest.
    image: str = ""
    # Files to start from: a snapshot of the layer store, by name or digest; the spec's own `files` come on top.
    snapshot: str = ""
    # single: everything inside is one unprivileged user. range: 65,536 of them, root among them, none of which is anybody outside.
    uid_mode: Literal["single", "range"] = "single"
    warm_python: bool = True  # it has an interpreter that forks Python programs (`run(warm=True)`)
    ttl_s: float | None = None  # it is killed this long after its birth
    idle_ttl_s: float | None = None  # ... this long after its last use; a heartbeat is a use
    start_script: str = ""  # for /bin/sh, run to its end before the services start, at birth and after a restore
    services: tuple[ServiceSpec, ...] = ()
    # A folder of the host to work in, read-write under its own path; the rest of the host is then in sight, read-only (folder.py).
    folder: str = ""
    hidden: tuple[str, ...] = ()  # around a folder: paths of the host to cover, in addition to folder.SECRETS


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
    cpu_s: float = 0.0  # of the command and all it waited for
    max_rss_kib: int = 0


@dataclass(frozen=True)
class OutputChunk:
    """A piece of a process' output. `seq` counts from 0 over both streams, in the order in which they were read inside."""

    seq: int
    stream: Literal["stdout", "stderr"]
    data: bytes


@dataclass(frozen=True)
class TerminalSize:
    """The size of a pseudo-terminal, in characters."""

    rows: int = 24
    columns: int = 80


@dataclass(frozen=True)
class FileEntry:
    """One file system entry, path relative to the folder that was listed."""

    path: str
    kind: Literal["file", "dir", "link", "other"]
    size_bytes: int
    mode: int


@dataclass(frozen=True)
class FileChange:
    """One difference between a sandbox' files and a snapshot; path relative to the root, without a leading slash."""

    path: str
    kind: Literal["added", "changed", "removed"]


@dataclass(frozen=True)
class SnapshotRef:
    """A frozen file system: `digest` names a chain of layers in the store of the host that made it."""

    digest: str
    name: str = ""


@dataclass(frozen=True)
class ServiceStatus:
    name: str
    healthy: bool
    detail: str = ""  # the end of its output, where it isn't


@dataclass(frozen=True)
class PoolStats:
    """What a pool holds now. `running`: commands; `waiting`: creates that wait for room."""

    live: int
    running: int
    waiting: int
    created: int
    max_live: int
    max_running: int


@dataclass(frozen=True)
class Capabilities:
    """What a back end can do here, each value found by doing it, never by looking for a file."""

    backend: str
    isolation: Isolation
    available: bool
    reason: str = ""
    limits: str = "rlimits"
    warm_python: bool = True
    runner: str = "python"  # what process 1 is: native or python
    snapshots: bool = False
    memory_snapshots: bool = False
    images: bool = False
    uid_ranges: bool = False
    cpus: bool = False
    egress: bool = False  # a socket of the inside can be handed out: for an allow-list's door, for `connect`
    disk: str = "tmpfs"  # how disk_mb is kept
