"""What a sandbox takes of a host, what a host has, and how it fares: plain values that travel."""

from __future__ import annotations

from dataclasses import dataclass

from etude.sandbox.spec import Capabilities, SandboxSpec

# A sandbox waits for its model most of its life: sixteen share a core before a spec's own bound says otherwise.
_IDLE_CPUS = 1 / 16


@dataclass(frozen=True)
class Demand:
    """`layers`: of its image or snapshot, topmost first."""

    memory_mb: float
    cpus: float
    layers: tuple[str, ...] = ()

    @staticmethod
    def of(spec: SandboxSpec, layers: tuple[str, ...] = ()) -> Demand:
        return Demand(spec.memory_mb, _IDLE_CPUS if spec.cpus is None else spec.cpus, layers)


@dataclass(frozen=True)
class HostFacts:
    """What a host has, reported once when it joins. Memory and cores are what may be promised, which may be more than is there."""

    memory_mb: float
    cpus: float
    max_live: int
    max_running: int
    creates_per_s: float
    capabilities: Capabilities


@dataclass(frozen=True)
class Heartbeat:
    """How a host fares, reported with every heartbeat. `live`: key → sandbox' id. Pressures are shares of time in which work waited, 0 to 1."""

    live: dict[str, str]
    layers: frozenset[str]
    cpu_pressure: float = 0.0
    memory_pressure: float = 0.0
    running: int = 0
