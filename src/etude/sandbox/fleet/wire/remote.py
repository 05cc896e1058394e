"""The fleet's end of a wire: a host, its sandboxes and their commands, as if they were here."""

from __future__ import annotations

import asyncio
import builtins
from collections.abc import AsyncIterator
from typing import Any

from etude.sandbox.egress.decisions import Decision
from etude.sandbox.errors import SandboxDied, SandboxError, SandboxNotFound, Unsupported
from etude.sandbox.fleet.box import ForwardingSandbox
from etude.sandbox.fleet.demand import Heartbeat, HostFacts
from etude.sandbox.fleet.errors import AnswerLost
from etude.sandbox.fleet.wire.link import Link
from etude.sandbox.protocol import Process, Sandbox
from etude.sandbox.spec import ExecResult, OutputChunk, SandboxSpec, SnapshotRef, State, TerminalSize

# What a request may take beyond its own time limit before its answer counts as lost.
PATIENCE_S = 60.0
_LAYER_PATIENCE_S = 600.0  # one of many gigabytes is packed, or written and hashed, within one request


class RemoteHost:
    def __init__(self, name: str, link: Link) -> None:
        self.name, self._link = name, link

    async def ask(self, method: str, *args: Any, patience_s: float | None = PATIENCE_S, **named: Any) -> Any:
        try:
            async with asyncio.timeout(patience_s):
                good, value = await self._link.ask(method, *args, **named)
        except TimeoutError:
            raise AnswerLost(f"host {self.name}: no answer to {method} within {patience_s} s") from None
        if not good:
            raise value
        return value

    async def facts(self) -> HostFacts:
        return await self.ask("facts")

    async def beat(self, owner: str) -> Heartbeat:
        return await self.ask("beat", owner)

    async def create(self, spec: SandboxSpec, owner: str, key: str) -> Sandbox:
        return RemoteSandbox(await self.ask("create", spec, owner, key), spec, self)

    async def restore(self, snapshot: SnapshotRef, spec: SandboxSpec, owner: str, key: str) -> Sandbox:
        return RemoteSandbox(await self.ask("restore", snapshot, spec, owner, key), spec, self)

    async def end(self, owner: str, key: str) -> None:
        await self.ask("end", owner, key)

    async def leave(self, owner: str) -> None:
        await self.ask("leave", owner)

    async def chain(self, called: str) -> tuple[tuple[str, ...], bytes]:
        return await self.ask("chain", called)

    async def missing(self, digests: tuple[str, ...]) -> list[str]:
        return await self.ask("missing", digests)

    async def export_layer(self, digest: str, start: int) -> tuple[bytes, bool]:
        return await self.ask("export_layer", digest, start, patience_s=_LAYER_PATIENCE_S)

    async def import_layer(self, digest: str, parcel: str, start: int, piece: bytes, more: bool) -> None:
        await self.ask("import_layer", digest, parcel, start, piece, more, patience_s=_LAYER_PATIENCE_S)

    async def enter(self, record: bytes, name: str) -> SnapshotRef:
        return await self.ask("enter", record, name, patience_s=_LAYER_PATIENCE_S)

    async def held(self) -> frozenset[str]:
        return await self.ask("held")


class RemoteSandbox(ForwardingSandbox):
    """State, deadline and decisions are what this end knows. An end by time is learnt from the next request or heartbeat; decisions at
    the door, of a sandbox that has one, with the answers to `run`, `heartbeat` and `set_network`, and before a kill."""

    def __init__(self, name: str, spec: SandboxSpec, host: RemoteHost) -> None:
        self.id, self.spec, self._host = name, spec, host
        self._state: State = "running"
        self._has_door = spec.network.mode == "allowlist"
        self.decisions: list[Decision] = []
        now = asyncio.get_running_loop().time()
        self._end_s = None if spec.ttl_s is None else now + spec.ttl_s

    @property
    def state(self) -> State:
        return self._state

    @property
    def deadline_s(self) -> float | None:
        return None if self._end_s is None else max(0.0, self._end_s - asyncio.get_running_loop().time())

    async def exec(self, *args: Any, **named: Any) -> Process:
        return RemoteProcess(await self._asked("start", self.id, *args, **named), self)

    async def fork(self, n: int = 1, *, memory: bool = False) -> builtins.list[Sandbox | SandboxError]:
        raise Unsupported("fork with memory: a child would be known to its host alone; fork within one pool")

    async def connect(self, port: int) -> Any:
        raise Unsupported(
            "connect: a socket can't leave its machine; exec a client inside, or use a pool of this machine"
        )

    async def pause(self) -> None:
        await super().pause()
        self._state = "paused"

    async def resume(self) -> None:
        await super().resume()
        self._state = "running"

    async def extend(self, ttl_s: float) -> None:
        await self._do("extend", ttl_s)
        self._end_s = asyncio.get_running_loop().time() + ttl_s

    async def kill(self) -> None:
        if self._state != "dead":
            try:
                await self._learn("kill")
                await self._asked("call", self.id, "kill")
            except SandboxNotFound:
                return  # it had ended before
            finally:
                self._state = "dead"

    async def _do(self, operation: str, *args: Any, **named: Any) -> Any:
        patience_s = PATIENCE_S + named.get("timeout_s", 10.0) if operation == "run" else PATIENCE_S
        done = await self._asked("call", self.id, operation, *args, patience_s=patience_s, **named)
        await self._learn(operation)
        return done

    async def _learn(self, operation: str) -> None:
        self._has_door |= operation == "set_network"
        if self._has_door and operation in ("run", "heartbeat", "set_network", "kill") and self._state != "dead":
            self.decisions = await self._asked("decisions", self.id)

    async def _asked(self, method: str, *args: Any, **named: Any) -> Any:
        try:
            return await self._host.ask(method, *args, **named)
        except (SandboxDied, SandboxNotFound) as error:
            # A snapshot that the host doesn't know is none of the sandbox' ends.
            if isinstance(error, SandboxDied) or args[1:2] not in (("diff",), ("git_patch",)):
                self._state = "dead"
            raise

    async def of_process(self, method: str, *args: Any) -> Any:
        return await self._asked(method, *args, patience_s=None if args[1:2] == ("wait",) else PATIENCE_S)


class RemoteProcess:
    def __init__(self, number: int, box: RemoteSandbox) -> None:
        self._number, self._box = number, box

    async def stream(self) -> AsyncIterator[OutputChunk]:
        ended = False
        while not ended:
            chunks, ended = await self._box.of_process("pull", self._number)
            for chunk in chunks:
                yield chunk

    async def write(self, data: bytes) -> None:
        await self._box.of_process("process", self._number, "write", data)

    async def close_stdin(self) -> None:
        await self._box.of_process("process", self._number, "close_stdin")

    async def resize(self, size: TerminalSize) -> None:
        await self._box.of_process("process", self._number, "resize", size)

    async def signal(self, number: int) -> None:
        await self._box.of_process("process", self._number, "signal", number)

    async def wait(self) -> ExecResult:
        return await self._box.of_process("process", self._number, "wait")
