"""The ends of fake sandboxes by ttl and idle ttl: timers of the loop, so that made-up time moves them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from etude.sandbox.errors import SandboxNotFound
from etude.sandbox.spec import SandboxSpec


@dataclass
class _Times:
    end_s: float | None
    idle_ttl_s: float | None
    used_s: float


class Alarms:
    def __init__(self, end: Callable[[str, str], None]) -> None:
        self._end = end  # (sandbox, why)
        self._times: dict[str, _Times] = {}

    def enter(self, name: str, spec: SandboxSpec) -> None:
        if spec.ttl_s is None and spec.idle_ttl_s is None:
            return
        now = asyncio.get_running_loop().time()
        self._times[name] = _Times(None if spec.ttl_s is None else now + spec.ttl_s, spec.idle_ttl_s, now)
        self._watch(name)

    def forget(self, name: str) -> None:
        self._times.pop(name, None)

    def used(self, name: str) -> None:
        if (times := self._times.get(name)) is not None:
            times.used_s = asyncio.get_running_loop().time()

    def extend(self, name: str, ttl_s: float) -> None:
        now = asyncio.get_running_loop().time()
        times = self._times.setdefault(name, _Times(None, None, now))
        times.end_s = now + ttl_s
        self._watch(name)

    def left_s(self, name: str) -> float | None:
        times = self._times.get(name)
        if times is None or times.end_s is None:
            return None
        return max(0.0, times.end_s - asyncio.get_running_loop().time())

    def _watch(self, name: str) -> None:
        """Ends it if its time has come; else looks again when it could have."""
        times = self._times.get(name)
        if times is None:
            return
        loop = asyncio.get_running_loop()
        idle_s = None if times.idle_ttl_s is None else times.used_s + times.idle_ttl_s
        due = min(at for at in (times.end_s, idle_s) if at is not None)
        if due > loop.time():
            loop.call_at(due, self._watch, name)
            return
        self.forget(name)
        self._end(name, "its ttl is over" if due == times.end_s else "its idle ttl is over")


def sandbox_ended(name: str, why: str) -> SandboxNotFound:
    return SandboxNotFound(f"{name} was ended: {why}")
