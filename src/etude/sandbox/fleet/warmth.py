"""How many sandboxes of a kind to keep ready: as many as are asked for while one is made, for kinds that are asked for often. Pure."""

from __future__ import annotations

import dataclasses
import math
from collections import deque
from collections.abc import Hashable

from etude.sandbox.spec import Network, SandboxSpec

WINDOW_S = 60.0
_HOT = 3  # requests within the window before a kind is worth keeping


def kind(spec: SandboxSpec) -> Hashable:
    """Specs of one kind can be made before they are asked for: their own files, labels and allow-lists come at the claim."""
    return repr(bare(spec))


def bare(spec: SandboxSpec) -> SandboxSpec:
    # A door must be there from birth; without hosts it is closed.
    return dataclasses.replace(spec, files={}, labels={}, network=Network(spec.network.mode))


def claimable(spec: SandboxSpec) -> bool:
    """A life that counts from birth can't begin before it is asked for; services may read the spec's files at their start; variables
    that name package indexes are set at birth."""
    timeless = spec.ttl_s is None and spec.idle_ttl_s is None
    return timeless and not spec.services and spec.network.mode != "host" and not spec.network.packages


class WarmPlan:
    """`most`: of one kind, 0 for none at all. `ready_s`: how long one takes to be made."""

    def __init__(self, most: int, ready_s: float = 1.0) -> None:
        self._most, self._ready_s = most, ready_s
        self._asked: dict[Hashable, deque[float]] = {}

    def on_request(self, kind: Hashable, now_s: float) -> None:
        times = self._asked.setdefault(kind, deque(maxlen=4096))
        times.append(now_s)

    def wanted_count(self, kind: Hashable, now_s: float) -> int:
        times = self._asked.get(kind, deque())
        while times and times[0] < now_s - WINDOW_S:
            times.popleft()
        if not times:
            self._asked.pop(kind, None)
        if len(times) < _HOT:
            return 0
        span_s = max(now_s - times[0], 1.0)
        return min(self._most, math.ceil(len(times) / span_s * self._ready_s))

    def kinds(self) -> list[Hashable]:
        return list(self._asked)
