"""Training samples: a rollout is one attempt at a task, held as linear token segments (self-summaries cut it; promise 4)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass
class Segment:
    """One linear token sequence of length T. Arrays share T; `routes` is None for dense models or scripted policies."""

    ids: np.ndarray  # (T,) int32
    sampled: np.ndarray  # (T,) bool: produced by the policy, hence trained on
    logprobs: np.ndarray  # (T,) float32, 0 where not sampled
    versions: np.ndarray  # (T,) int32, -1 where not sampled
    routes: np.ndarray | None = None  # (T, L_moe, K) uint8/uint16; rows never forwarded by the engine hold `no_route`
    session: str = ""  # of which session it is, where that is known

    def __len__(self) -> int:
        return len(self.ids)


# Marks entries of `Segment.routes` where the trainer's own router decides: the largest number of the array's type, which is no expert's.
NO_ROUTE = 255  # of uint8, for models of up to 255 experts
NO_ROUTE_WIDE = 65_535  # of uint16


def no_route(dtype: np.dtype | type) -> int:
    """The marker of routes of this type."""
    return NO_ROUTE if np.dtype(dtype).itemsize == 1 else NO_ROUTE_WIDE


def route_mask(routes: np.ndarray) -> np.ndarray:
    """Where `routes` (..., K) name an expert: bool, same shape.

    Files written before there was a marker for uint16 mark with 255 there. No router chooses an expert twice for a token, so K entries of
    255 are a mark.
    """
    found = routes != no_route(routes.dtype)
    if routes.dtype.itemsize > 1 and routes.shape[-1] > 1:
        found &= ~(routes == NO_ROUTE).all(-1, keepdims=True)
    return found


def wide_routes(routes: np.ndarray) -> np.ndarray:
    """Routes for the model's forward: uint8 as they are, wider ones as int32 with -1 where there is none (torch computes little in uint16)."""
    if routes.dtype.itemsize == 1:
        return routes
    return np.where(route_mask(routes), routes.astype(np.int32), np.int32(-1))


@dataclass
class Rollout:
    """One attempt. `rewards` are named components, the outcome under "outcome"; `counters` come from the harness."""

    id: str
    task_id: str
    group: int
    segments: list[Segment]
    rewards: dict[str, float] = field(default_factory=dict)
    counters: dict[str, float] = field(default_factory=dict)
    info: dict[str, Any] = field(default_factory=dict)

    @property
    def start_version(self) -> int:
        """The oldest policy version that sampled a token of this rollout (-1 if none did)."""
        versions = [int(s.versions[s.sampled].min()) for s in self.segments if s.sampled.any()]
        return min(versions, default=-1)
