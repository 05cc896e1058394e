"""The host's end of a wire: sandboxes and commands by their ids. A fleet that isn't heard of any more loses its lease and its sandboxes."""

from __future__ import annotations

import asyncio
import itertools
import pickle
import random
from typing import Any

from etude.sandbox.egress.decisions import Decision
from etude.sandbox.errors import InfraError, SandboxError, SandboxNotFound
from etude.sandbox.fleet.demand import Heartbeat
from etude.sandbox.fleet.errors import AnswerLost, HostLost
from etude.sandbox.fleet.host import Host
from etude.sandbox.fleet.hosts import HEARTBEAT_S, Leases
from etude.sandbox.fleet.wire.link import Answer
from etude.sandbox.protocol import Process, Sandbox
from etude.sandbox.spec import OutputChunk, SandboxSpec, SnapshotRef

_HOST = frozenset({"facts", "end", "chain", "missing", "export_layer", "import_layer", "enter", "held"})
_HERE = frozenset({"beat", "create", "restore", "leave", "call", "start", "pull", "process", "decisions"})
_BOX = frozenset(
    {
        "run", "read", "write", "list", "remove", "export", "stat", "put_tar", "get_tar", "snapshot", "diff", "git_patch",
        "pause", "resume", "set_network", "services", "heartbeat", "extend", "kill",
    }
)  # fmt: skip
_PROCESS = frozenset({"write", "close_stdin", "resize", "signal", "wait"})


class HostServer:
    def __init__(self, host: Host) -> None:
        self._host = host
        self._boxes: dict[str, Sandbox] = {}
        self._processes: dict[int, tuple[str, Process, BufferedOutput]] = {}
        self._numbers = itertools.count(1)
        self._leases, self._owners = Leases(), set[str]()
        self._watch: asyncio.Task[None] | None = None

    async def ask(self, method: str, *args: Any, **named: Any) -> Answer:
        """Never raises but for a broken request: errors are answers."""
        try:
            if method in _HOST:
                return True, await getattr(self._host, method)(*args, **named)
            if method in _HERE:
                return True, await getattr(self, method)(*args, **named)
        except SandboxError as error:
            return False, error
        raise ValueError(f"{method!r} is nothing that a host can be asked")

    async def beat(self, owner: str) -> Heartbeat:
        self._leases.renew(owner, asyncio.get_running_loop().time())
        self._owners.add(owner)
        if self._watch is None:
            self._watch = asyncio.create_task(self._watch_leases())
        self._drop_dead()
        return await self._host.beat(owner)

    async def create(self, spec: SandboxSpec, owner: str, key: str) -> str:
        return self._enter(await self._host.create(spec, owner, key))

    async def restore(self, snapshot: SnapshotRef, spec: SandboxSpec, owner: str, key: str) -> str:
        return self._enter(await self._host.restore(snapshot, spec, owner, key))

    async def leave(self, owner: str) -> None:
        self._leases.end(owner)
        self._owners.discard(owner)
        await self._host.leave(owner)

    async def call(self, box: str, operation: str, *args: Any, **named: Any) -> Any:
        if operation not in _BOX:
            raise InfraError(f"{operation!r} is no operation of a sandbox that travels")
        done = await getattr(self._box(box), operation)(*args, **named)
        if operation == "kill":
            self._forget(box)
        return done

    async def decisions(self, box: str) -> list[Decision]:
        return self._box(box).decisions

    async def start(self, box: str, *args: Any, **named: Any) -> int:
        process = await self._box(box).exec(*args, **named)
        number = next(self._numbers)
        self._processes[number] = (box, process, BufferedOutput(process))
        return number

    async def pull(self, number: int) -> tuple[list[OutputChunk], bool]:
        return await self._process(number)[1].pull()

    async def process(self, number: int, operation: str, *args: Any) -> Any:
        if operation not in _PROCESS:
            raise InfraError(f"{operation!r} is no operation of a command")
        return await getattr(self._process(number)[0], operation)(*args)

    def close(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
        for box in list(self._boxes):
            self._forget(box)

    def _enter(self, box: Sandbox) -> str:
        self._boxes[box.id] = box
        return box.id

    def _box(self, name: str) -> Sandbox:
        if name not in self._boxes:
            raise SandboxNotFound(f"{name}: no such sandbox on host {self._host.name}")
        return self._boxes[name]

    def _process(self, number: int) -> tuple[Process, BufferedOutput]:
        if number not in self._processes:
            raise SandboxNotFound(f"command {number}: its sandbox is gone from host {self._host.name}")
        return self._processes[number][1:]

    def _forget(self, box: str) -> None:
        self._boxes.pop(box, None)
        for number, (whose, _, output) in list(self._processes.items()):
            if whose == box:
                output.close()
                del self._processes[number]

    def _drop_dead(self) -> None:
        for name, box in list(self._boxes.items()):
            if box.state == "dead":
                self._forget(name)

    async def _watch_leases(self) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            now = asyncio.get_running_loop().time()
            for owner in [owner for owner in self._owners if self._leases.over(owner, now)]:
                await self.leave(owner)
                self._drop_dead()


AHEAD_BYTES = 4 << 20
BATCH_BYTES = 1 << 20
_IDLE_S = 20.0  # then an empty batch: a request that is open for ever looks like a lost one


class BufferedOutput:
    """Reads nothing before the first pull, so that `wait` alone still gets it all."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._chunks: list[OutputChunk] = []
        self._held_bytes = 0
        self._news, self._room = asyncio.Event(), asyncio.Event()
        self._error: SandboxError | None = None
        self._reader: asyncio.Task[None] | None = None

    async def pull(self) -> tuple[list[OutputChunk], bool]:
        """What has come since, BATCH_BYTES and at most one chunk more; true with the last of it."""
        if self._reader is None:
            self._reader = asyncio.create_task(self._read())
        try:
            async with asyncio.timeout(_IDLE_S):
                await self._news.wait()
        except TimeoutError:
            return [], False
        batch: list[OutputChunk] = []
        size = count = 0
        for chunk in self._chunks:
            if size >= BATCH_BYTES:
                break
            batch.append(chunk)
            size += len(chunk.data)
            count += 1
        del self._chunks[:count]
        self._held_bytes -= size
        self._room.set()
        ended = self._reader.done() and not self._chunks
        if ended and not batch and self._error is not None:
            raise self._error
        if not self._chunks and not self._reader.done():
            self._news.clear()
        return batch, ended and self._error is None

    def close(self) -> None:
        if self._reader is not None:
            self._reader.cancel()

    async def _read(self) -> None:
        try:
            async for chunk in self._process.stream():
                self._chunks.append(chunk)
                self._held_bytes += len(chunk.data)
                self._news.set()
                while self._held_bytes >= AHEAD_BYTES:
                    self._room.clear()
                    await self._room.wait()
        except SandboxError as error:
            self._error = error
        finally:
            asyncio.get_running_loop().call_soon(self._news.set)  # when this task is seen to be done


# A link within one process. It can be slow, lose answers or break, as a network does, on demand and from a seed.


class LoopLink:
    """`copying`: values travel as bytes, as they would over a network. `lost`: the share of requests whose answer doesn't come back."""

    def __init__(
        self, server: HostServer, *, delay_s: float = 0.0, lost: float = 0.0, seed: int = 0, copying: bool = True
    ) -> None:
        self._server, self._delay_s, self._lost, self._copying = server, delay_s, lost, copying
        self._dice = random.Random(seed)
        self.broken = False  # refuses, as a dead process does
        self.silent = False  # answers nothing, as a dead machine does
        self.lose_next = 0  # how many answers to the next requests

    async def ask(self, method: str, *args: Any, **named: Any) -> Answer:
        if self.broken:
            raise HostLost("the other end is gone")
        await self._silence()
        if self._delay_s:
            await asyncio.sleep(self._delay_s)
        if self._copying:
            args, named = pickle.loads(pickle.dumps((args, named)))
        answer = await self._server.ask(method, *args, **named)
        await self._silence()
        if self.lose_next or (self._lost and self._dice.random() < self._lost):
            self.lose_next = max(0, self.lose_next - 1)
            raise AnswerLost(f"the answer to {method} was lost")
        if self.broken:
            raise HostLost("the other end is gone")
        return pickle.loads(pickle.dumps(answer)) if self._copying else answer

    async def _silence(self) -> None:
        if self.silent:
            await asyncio.get_running_loop().create_future()  # until the asker's patience ends

    async def close(self) -> None:
        self._server.close()
