"""Which segments SFT learns from: those that fit the model's positions and hold a token to learn from. Decided before the first step.

A segment that is too long would end the stage in the middle, when the shuffle reaches it; one without a token of any weight makes a batch whose
loss is 0 / 0. The first is a choice of the recipe, so it is asked for by name; the second teaches nothing and is left out and counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np

from etude.core.trace.segment import Segment
from etude.learn.train.settings import TooLong


class SessionTooLong(ValueError):
    """A session is longer than the model's positions; the message names it and the setting."""


def fit_segments(
    segments: Sequence[Segment], positions: int, how: TooLong, note: Callable[[str], None], kind: str = "segment"
) -> list[Segment]:
    """Segments of at most `positions` tokens, in order. Longer ones stop the stage, lose their end, or are left out, as `how` says.

    Raises SessionTooLong for "stop".
    """
    long = [place for place, segment in enumerate(segments) if len(segment) > positions]
    if not long:
        return list(segments)
    first = segments[long[0]]
    name = f"{kind} {long[0] + 1} of {len(segments)}" + (f" (session {first.session})" if first.session else "")
    line = f"{name} has {len(first)} tokens, and the model's positions end at {positions}; {len(long)} of {len(segments)} are too long"
    if how == "stop":
        raise SessionTooLong(
            f'{line}: set sft.too_long to "cut" or "drop", summarize sessions earlier, or take a model with a longer context'
        )
    note(f"{line}: {'their ends are cut off' if how == 'cut' else 'they are left out'} (sft.too_long)")
    if how == "drop":
        return [segment for segment in segments if len(segment) <= positions]
    return [_cut(segment, positions) for segment in segments]


def learnable(segments: Iterable[Segment], weigh: Callable[[Segment], np.ndarray]) -> tuple[list[Segment], int]:
    """Segments with a sampled token and at least one token of weight, as `weigh` (T,) says, and how many have a sampled token alone."""
    sampled = [segment for segment in segments if segment.sampled.any()]
    held = [segment for segment in sampled if weigh(segment).any()]
    return held, len(sampled) - len(held)


def _cut(segment: Segment, length: int) -> Segment:
    if len(segment) <= length:
        return segment
    routes = None if segment.routes is None else segment.routes[:length]
    arrays = {name: getattr(segment, name)[:length] for name in ("ids", "sampled", "logprobs", "versions")}
    return replace(segment, **arrays, routes=routes)
