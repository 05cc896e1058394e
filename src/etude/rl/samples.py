"""Rollouts for a person to read: `samples.json`, tokens as text with logprob, version and advantage (the report shows it)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from etude.trace.segment import Rollout


def readable(
    step: int, rollout: Rollout, parts: dict[str, float], advantage: float, vocabulary: Sequence[str]
) -> dict[str, Any]:
    """One rollout as the report's reader wants it."""
    return {
        "step": step,
        "task_id": rollout.task_id,
        "advantage": round(advantage, 4),
        "rewards": {name: round(value, 4) for name, value in parts.items()},
        "segments": [
            {
                "tokens": [vocabulary[token] for token in segment.ids.tolist()],
                "sampled": segment.sampled.tolist(),
                "logprobs": [round(value, 3) for value in segment.logprobs.tolist()],
                "versions": segment.versions.tolist(),
            }
            for segment in rollout.segments
        ],
    }


def worth_reading(rollouts: Sequence[Rollout], advantages: Sequence[float]) -> list[int]:
    """Two of a batch: the best and the worst by advantage, that is where the group disagreed most."""
    if not rollouts:
        return []
    order = sorted(range(len(rollouts)), key=lambda i: (advantages[i], i))
    return [order[-1], order[0]] if len(order) > 1 else order


def spread(steps: int, wanted: int) -> list[int]:
    """At most `wanted` steps, spread evenly from the first to the last."""
    if steps <= wanted:
        return list(range(steps))
    return sorted({round(i * (steps - 1) / (wanted - 1)) for i in range(wanted)})
