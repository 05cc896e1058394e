"""Which host gets the next sandbox. Pure: no I/O, no clock; its dice come from a seed.

Best of K: from the hosts that take sandboxes, K drawn at random and K drawn among those that hold the topmost layers of what is asked for
are compared by what they have promised and how they fare; the least loaded wins, and a host with warm layers counts as less loaded.
Best of a few beats the global best: many controllers, or many creates between two heartbeats, do not all rush to one host. A decision
is O(K + layers), so that it stays far below a millisecond with 500 hosts; only where none of the drawn has room are all asked.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from etude.sandbox.fleet.demand import Demand, Heartbeat, HostFacts

K = 4
_WARM = 0.5  # a host whose layers are all there may be this share more loaded before a cold one is taken
_PRESSURE = 2.0  # work that waits half of its time weighs as much as a host that has promised all it has


class RandomSet:
    """A set from which K members can be drawn at random in O(K), whatever its size."""

    def __init__(self) -> None:
        self._items: list[str] = []
        self._places: dict[str, int] = {}

    def __contains__(self, item: str) -> bool:
        return item in self._places

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self):
        return iter(self._items)

    def add(self, item: str) -> None:
        if item not in self._places:
            self._places[item] = len(self._items)
            self._items.append(item)

    def remove(self, item: str) -> None:
        """Its place is taken by the last one."""
        place = self._places.pop(item, None)
        if place is None:
            return
        last = self._items.pop()
        if last != item:
            self._items[place] = last
            self._places[last] = place

    def draw(self, k: int, rng: random.Random) -> list[str]:
        if len(self._items) <= k:
            return list(self._items)
        return [self._items[int(rng.random() * len(self._items))] for _ in range(k)]


class ReservationBucket:
    """A token bucket with a burst of one second. Reserving a token returns how long to wait for it. Pure."""

    def __init__(self, per_s: float) -> None:
        if per_s <= 0:
            raise ValueError(f"creates a second must be above 0, got {per_s}")
        self._each_s = 1 / per_s
        self._free_at_s = float("-inf")  # when the bucket will be full again, less what is reserved

    def wait_s(self, now_s: float) -> float:
        """What `reserve` would say."""
        return max(0.0, max(self._free_at_s, now_s - 1.0) + self._each_s - now_s)

    def reserve(self, now_s: float) -> float:
        """Takes the next token, which may lie in the future: first come, first served. Seconds until it may be used."""
        wait = self.wait_s(now_s)
        self._free_at_s = max(self._free_at_s, now_s - 1.0) + self._each_s
        return wait


@dataclass
class HostState:
    """What is known of one host."""

    facts: HostFacts
    bucket: ReservationBucket
    memory_mb: float = 0.0
    cpus: float = 0.0
    live: int = 0
    pressure: float = 0.0
    layers: set[str] = field(default_factory=set)

    def fits(self, demand: Demand) -> bool:
        return (
            self.live < self.facts.max_live
            and self.memory_mb + demand.memory_mb <= self.facts.memory_mb
            and self.cpus + demand.cpus <= self.facts.cpus
        )

    def load(self, demand: Demand, now_s: float) -> float:
        facts = self.facts
        promised = max(self.memory_mb / facts.memory_mb, self.cpus / facts.cpus, self.live / facts.max_live)
        warm = sum(layer in self.layers for layer in demand.layers) / len(demand.layers) if demand.layers else 0.0
        return promised + _PRESSURE * self.pressure + self.bucket.wait_s(now_s) - _WARM * warm


class Placement:
    def __init__(self, seed: int = 0) -> None:
        self.places: dict[str, HostState] = {}
        self._open = RandomSet()
        self._holders: dict[str, RandomSet] = {}  # layer → hosts
        self._rng = random.Random(seed)

    def join(self, host: str, facts: HostFacts) -> None:
        self.places[host] = HostState(facts, ReservationBucket(facts.creates_per_s))
        self._open.add(host)

    def leave(self, host: str) -> None:
        """Lost: what it held is gone."""
        self.close(host)
        self.learn(host, Heartbeat({}, frozenset()))
        place = self.places[host]
        place.memory_mb, place.cpus, place.live = 0.0, 0.0, 0

    def close(self, host: str) -> None:
        """Drained: nothing new."""
        self._open.remove(host)

    def open(self, host: str) -> None:
        self._open.add(host)

    def takes(self, host: str) -> bool:
        return host in self._open

    def learn(self, host: str, beat: Heartbeat) -> None:
        place = self.places[host]
        place.pressure = max(beat.cpu_pressure, beat.memory_pressure)
        for gone in place.layers - beat.layers:
            self._holders[gone].remove(host)
            if not len(self._holders[gone]):
                del self._holders[gone]
        for layer in beat.layers - place.layers:
            self.holds(host, layer)
        place.layers = set(beat.layers)

    def holds(self, host: str, layer: str) -> None:
        self.places[host].layers.add(layer)
        self._holders.setdefault(layer, RandomSet()).add(host)

    def holders(self, layer: str) -> list[str]:
        """Every host that has it, drained ones too: they can still give it away."""
        return list(self._holders.get(layer, ()))

    def choose(self, demand: Demand, now_s: float, avoid: frozenset[str] = frozenset()) -> str | None:
        """A host with free room, which `commit` then reserves; None where there is none. `avoid`: only where there is no other."""
        drawn = self._open.draw(K, self._rng)
        for layer in demand.layers[:2]:
            if layer in self._holders:
                drawn += [host for host in self._holders[layer].draw(K, self._rng) if host in self._open]
        found = self._best(drawn, demand, now_s, avoid)
        return found or self._best(list(self._open), demand, now_s, avoid) or (
            self._best(list(self._open), demand, now_s, frozenset()) if avoid else None
        )  # fmt: skip

    def commit(self, host: str, demand: Demand) -> None:
        self._add(host, demand, 1)

    def release(self, host: str, demand: Demand) -> None:
        self._add(host, demand, -1)

    def _add(self, host: str, demand: Demand, sign: int) -> None:
        place = self.places[host]
        place.live += sign
        place.memory_mb += sign * demand.memory_mb
        place.cpus += sign * demand.cpus

    def _best(self, hosts: list[str], demand: Demand, now_s: float, avoid: frozenset[str]) -> str | None:
        fitting = [host for host in hosts if host not in avoid and self.places[host].fits(demand)]
        return min(fitting, key=lambda host: self.places[host].load(demand, now_s), default=None)
