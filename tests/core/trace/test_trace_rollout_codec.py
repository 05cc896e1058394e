"""A rollout's bytes give the same rollout back, and anything else is refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.core.trace.rollout_codec import rollout_from_bytes, rollout_to_bytes
from etude.core.trace.segment import Rollout, Segment


@st.composite
def segments(draw: st.DrawFn) -> Segment:
    mask = np.array(draw(st.lists(st.booleans(), max_size=40)), dtype=bool)
    n = len(mask)
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    logprobs = np.where(mask, -rng.exponential(size=n), 0).astype(np.float32)
    versions = np.where(mask, rng.integers(0, 9, n), -1).astype(np.int32)
    routes = None
    if draw(st.booleans()):
        routes = rng.integers(0, 9, (n, 3, 2)).astype(draw(st.sampled_from([np.uint8, np.uint16])))
    return Segment(rng.integers(0, 1 << 20, n).astype(np.int32), mask, logprobs, versions, routes)


@given(parts=st.lists(segments(), max_size=3), reward=st.floats(allow_nan=False))
def test_a_rollout_survives_the_way_exactly(parts: list[Segment], reward: float) -> None:
    rollout = Rollout("r/1", "t", 3, parts, {"outcome": reward}, {"turns": 2.0}, {"end": "done"})
    back = rollout_from_bytes(rollout_to_bytes(rollout))
    assert (back.id, back.task_id, back.group, back.rewards) == ("r/1", "t", 3, {"outcome": reward})
    assert back.counters == rollout.counters and back.info == rollout.info
    for a, b in zip(rollout.segments, back.segments, strict=True):
        for name in ("ids", "sampled", "logprobs", "versions", "routes"):
            x, y = getattr(a, name), getattr(b, name)
            assert (x is None and y is None) or (x.dtype == y.dtype and np.array_equal(x, y))
    assert back.start_version == rollout.start_version


@given(at=st.integers(0, 10_000), cut=st.booleans())
def test_damaged_bytes_are_refused(at: int, cut: bool) -> None:
    mask = np.ones(4, dtype=bool)
    segment = Segment(np.arange(4, dtype=np.int32), mask, np.zeros(4, np.float32), np.zeros(4, np.int32))
    data = bytearray(rollout_to_bytes(Rollout("r", "t", 0, [segment])))
    at %= len(data)
    if cut:
        data = data[:at]
    else:
        data[at] ^= 0x10
    with pytest.raises(ValueError, match="no whole rollout"):
        rollout_from_bytes(bytes(data))
