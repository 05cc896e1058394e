"""The pool of sandboxes in memory (`sandbox.backend = "fake"`). From one seed come the same costs, faults and names, every time."""

from __future__ import annotations

import asyncio
import builtins
import itertools
import math
import random
from collections.abc import Mapping
from dataclasses import dataclass

from etude.sandbox.errors import (
    CapacityExhausted,
    InfraError,
    SandboxDied,
    SandboxError,
    SandboxNotFound,
    Unsupported,
    UserError,
)
from etude.sandbox.fake.alarms import Alarms, sandbox_ended
from etude.sandbox.fake.box import FakeSandbox
from etude.sandbox.fake.command import Program
from etude.sandbox.fake.faults import FaultPlan, Faults
from etude.sandbox.fake.layer import FakeLayer, FakeLayerStore
from etude.sandbox.fake.programs import BUILT_IN
from etude.sandbox.network import rules
from etude.sandbox.protocol import Sandbox
from etude.sandbox.spec import Capabilities, Network, PoolStats, SandboxSpec, SnapshotRef

# What the operations of a fake sandbox cost in time: log-normal around a median, drawn from a seed.


@dataclass(frozen=True)
class Costs:
    """Medians in seconds; 0: no time passes. The defaults cost nothing; `MEASURED` is our namespaces on two shared cores."""

    create_s: float = 0.0
    command_s: float = 0.0
    file_s: float = 0.0
    snapshot_s: float = 0.0
    kill_s: float = 0.0
    spread: float = 0.5  # standard deviation of the logarithm: p99 is then 3.2 times the median

    def of(self, operation: str, normal: float) -> float:
        """`normal`: a draw from the standard normal distribution."""
        return getattr(self, f"{operation}_s") * math.exp(self.spread * normal)


MEASURED = Costs(create_s=0.015, command_s=0.002, file_s=0.001, snapshot_s=0.01, kill_s=0.005)


_AGAIN_S = 1.0  # after which a full pool may have room


class FakePool:
    def __init__(
        self,
        costs: Costs = Costs(),
        plan: FaultPlan = FaultPlan(),
        *,
        seed: int = 0,
        max_live: int = 1000,
        max_running: int = 64,
        programs: Mapping[str, Program] | None = None,
        name: str = "fake",
    ) -> None:
        self.programs: Mapping[str, Program] = {**BUILT_IN, **(programs or {})}
        self.host_layers = FakeLayerStore()
        self._costs, self._dice, self._name = costs, random.Random(seed), name
        self.faults = Faults(plan, random.Random(seed + 1))
        self.running = asyncio.Semaphore(max_running)
        self.lifetimes = Alarms(self._expire)
        self._max_live, self._max_running = max_live, max_running
        self._live: dict[str, FakeSandbox] = {}
        self._keys: dict[str, asyncio.Future[FakeSandbox]] = {}
        self._numbers = itertools.count(1)
        self._pending = self._created = 0
        self._closed = False

    def probe(self) -> Capabilities:
        return Capabilities(
            "fake", "process", True, "in memory; isolates nothing", limits="none", warm_python=False,
            runner="none", snapshots=True, images=True, egress=True, disk="memory",
        )  # fmt: skip

    async def create(self, spec: SandboxSpec, *, key: str | None = None) -> FakeSandbox:
        layers = self._image(spec)
        if key is None:
            return await self._make(spec, layers)
        held = self._keys.get(key)
        if held is not None and (not held.done() or held.result().state != "dead"):
            return await asyncio.shield(held)
        task = asyncio.ensure_future(self._make(spec, layers))
        self._keys[key] = task
        task.add_done_callback(lambda done: self._forget_failure(key, done))
        return await asyncio.shield(task)

    async def restore(
        self, snapshot: SnapshotRef, spec: SandboxSpec, n: int = 1
    ) -> builtins.list[Sandbox | SandboxError]:
        layers = self.host_layers.find(snapshot.digest)

        async def one() -> Sandbox | SandboxError:
            try:
                return await self._make(spec, layers)
            except SandboxError as error:
                return error

        return builtins.list(await asyncio.gather(*(one() for _ in range(n))))

    def list(self, labels: dict[str, str] | None = None) -> builtins.list[Sandbox]:
        wanted = (labels or {}).items()
        return [one for one in self._live.values() if wanted <= one.spec.labels.items()]

    async def reap(self) -> builtins.list[str]:
        """Nothing outlives its owner in memory, and timers end what is past its time."""
        return []

    def stats(self) -> PoolStats:
        busy = self._max_running - self.running._value
        return PoolStats(len(self._live), busy, 0, self._created, self._max_live, self._max_running)

    async def close(self) -> None:
        self._closed = True
        await asyncio.gather(*(one.kill() for one in builtins.list(self._live.values())))

    def crash(self) -> None:
        """As if the machine had lost power: all ends at once, and nothing can be made any more."""
        self._closed = True
        for one in builtins.list(self._live.values()):
            one.end(lambda one=one: _died(one))

    def cost(self, operation: str) -> float:
        return self._costs.of(operation, self._dice.gauss(0, 1))

    def require_network(self, network: Network) -> None:
        if network.mode == "host":
            raise Unsupported("network='host': back end fake has no machine around it; take none or allowlist")
        rules.require(network)

    def forget(self, name: str) -> None:
        self._live.pop(name, None)
        self.lifetimes.forget(name)

    async def _make(self, spec: SandboxSpec, layers: tuple[FakeLayer, ...]) -> FakeSandbox:
        if self._closed:
            raise SandboxNotFound("the pool is closed")
        self._require(spec)
        if len(self._live) + self._pending >= self._max_live:
            raise CapacityExhausted(f"{self._name} holds {self._max_live} sandboxes, its most", _AGAIN_S)
        self._pending += 1
        try:
            if cost := self.cost("create"):
                await asyncio.sleep(cost)
            if self.faults.strikes("slow"):
                await asyncio.sleep(self.faults.plan.slow_s)
            if self.faults.strikes("create_fails"):
                raise InfraError(f"{self._name}: create failed (injected)")
            if self._closed:
                raise SandboxNotFound("the pool is closed")
            made = FakeSandbox(f"{self._name}-{next(self._numbers)}", spec, self, layers)
        finally:
            self._pending -= 1
        self._live[made.id] = made
        self._created += 1
        self.lifetimes.enter(made.id, spec)
        return made

    def _image(self, spec: SandboxSpec) -> tuple[FakeLayer, ...]:
        called = spec.snapshot or spec.image
        if not called:
            return ()
        try:
            return self.host_layers.find(called)
        except SandboxNotFound as error:
            raise UserError(f"{'snapshot' if spec.snapshot else 'image'}={called!r}: {error}") from None

    def _require(self, spec: SandboxSpec) -> None:
        self.require_network(spec.network)
        if spec.isolation_min != "process":
            raise Unsupported(f"isolation_min={spec.isolation_min!r}: back end fake isolates nothing; take another")
        if spec.folder or spec.hidden or spec.read_only_binds:
            raise Unsupported("folder, hidden, read_only_binds: back end fake sees no file of the host; take another")
        if spec.uid_mode != "single":
            raise Unsupported(f"uid_mode={spec.uid_mode!r}: back end fake has no users; take single")

    def _expire(self, name: str, why: str) -> None:
        self._live[name].end(lambda: sandbox_ended(name, why))

    def _forget_failure(self, key: str, done: asyncio.Future[FakeSandbox]) -> None:
        if done.cancelled() or done.exception() is not None:
            self._keys.pop(key, None)


def _died(one: FakeSandbox) -> SandboxError:
    return SandboxDied(f"{one.id}: its machine died")
