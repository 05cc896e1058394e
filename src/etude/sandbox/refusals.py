"""What a back end that can do less says to each demand beyond files and commands: a typed refusal that names the demand and itself."""

from __future__ import annotations

import socket

from etude.sandbox.egress.decisions import Decision
from etude.sandbox.errors import SandboxError, Unsupported
from etude.sandbox.protocol import Process, Sandbox
from etude.sandbox.spec import FileChange, FileEntry, Network, ServiceStatus, SnapshotRef, State, TerminalSize


class Refusals:
    """The part of `Sandbox` beyond `Disposable`, refused. A back end overrides what it can do; `backend` names it in the refusals."""

    backend: str = "this one"
    state: State = "running"

    @property
    def deadline_s(self) -> float | None:
        return None

    def _refusal(self, demand: str) -> Unsupported:
        return Unsupported(f"back end {self.backend} has no {demand}; `etude sandbox probe` says which one has")

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
        raise self._refusal("streaming exec")

    async def stat(self, path: str) -> FileEntry:
        raise self._refusal("stat")

    async def put_tar(self, path: str, archive: bytes) -> None:
        raise self._refusal("put_tar")

    async def get_tar(self, path: str = ".", *, max_bytes: int = 64 << 20) -> bytes:
        raise self._refusal("get_tar")

    async def snapshot(self, name: str = "", *, memory: bool = False) -> SnapshotRef:
        raise self._refusal("snapshot")

    async def fork(self, n: int = 1, *, memory: bool = False) -> list[Sandbox | SandboxError]:
        raise self._refusal("fork")

    async def diff(self, since: SnapshotRef | None = None) -> list[FileChange]:
        raise self._refusal("diff")

    async def git_patch(self, since: SnapshotRef | None = None) -> bytes:
        raise self._refusal("git_patch")

    async def pause(self) -> None:
        raise self._refusal("pause")

    async def resume(self) -> None:
        raise self._refusal("resume")

    async def set_network(self, network: Network) -> None:
        raise self._refusal("change of network")

    @property
    def decisions(self) -> list[Decision]:
        return []

    async def connect(self, port: int) -> socket.socket:
        raise self._refusal("connect")

    async def services(self) -> list[ServiceStatus]:
        return []

    async def heartbeat(self) -> None:
        return None

    async def extend(self, ttl_s: float) -> None:
        raise self._refusal("ttl")
