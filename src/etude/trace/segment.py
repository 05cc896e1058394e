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
    routes: np.ndarray | None = None  # (T, L_moe, K) uint8/uint16; rows never forwarded by the engine hold NO_ROUTE

    def __len__(self) -> int:
        return len(self.ids)


NO_ROUTE = 255  # row marker in `Segment.routes`: the trainer's own router decides there


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
