"""A group's file with a damaged byte is refused, or gives the very rollouts that were written: never others."""

from __future__ import annotations

import numpy as np
import pytest

from etude.core.trace.group_file import DamagedGroup, pack_group, unpack_group
from etude.core.trace.segment import Rollout, Segment


def a_group() -> list[Rollout]:
    rng = np.random.default_rng(0)
    parts = [
        Segment(
            rng.integers(0, 600, n).astype(np.int32),
            rng.random(n) < 0.5,
            -rng.random(n).astype(np.float32),
            rng.integers(0, 9, n).astype(np.int32),
        )
        for n in (40, 9)
    ]
    return [Rollout(f"r{n}", "task", 3, [part], {"outcome": 0.25}, {"turns": 4.0}, {}) for n, part in enumerate(parts)]


def described(rollouts: list[Rollout]) -> list[object]:
    fields = ("ids", "sampled", "logprobs", "versions")
    return [
        (one.id, one.rewards, [[getattr(segment, name).tobytes() for name in fields] for segment in one.segments])
        for one in rollouts
    ]


@pytest.mark.parametrize("bit", range(8))
def test_a_bit_that_flips_anywhere_changes_no_token_and_no_reward(bit: int):
    packed, whole = pack_group(a_group()), described(a_group())
    refused = 0
    for at in range(len(packed)):
        broken = packed[:at] + bytes([packed[at] ^ 1 << bit]) + packed[at + 1 :]
        try:
            assert described(unpack_group(broken)) == whole, at
        except DamagedGroup:
            refused += 1
    assert refused > 0.98 * len(packed)  # a few bits of the frame's head mean nothing


def test_a_segment_keeps_the_session_that_it_is_of():
    first, second = a_group()
    first.segments[0].session = "task-1-é"
    again = unpack_group(pack_group([first, second]))
    assert [one.segments[0].session for one in again] == ["task-1-é", ""]


def test_a_group_that_was_cut_off_is_refused():
    packed = pack_group(a_group())
    for size in range(len(packed)):
        with pytest.raises(DamagedGroup):
            unpack_group(packed[:size])
