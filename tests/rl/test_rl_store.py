"""Groups survive on disk bit by bit, and the ledger forgives a torn end but nothing else (promise 6)."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.core.trace.group_file import DamagedGroup
from etude.core.trace.segment import Rollout, Segment
from etude.rl.ledger import RlLedger, entries_of, fold
from etude.rl.store import GroupStore


def a_rollout(seed: int, segments: int, routed: bool) -> Rollout:
    rng = np.random.default_rng(seed)
    parts = []
    for _ in range(segments):
        n = int(rng.integers(1, 60))
        routes = rng.integers(0, 8, (n, 3, 2)).astype(np.uint8) if routed else None
        versions = rng.integers(-1, 9, n).astype(np.int32)
        logprobs = -rng.random(n).astype(np.float32)
        parts.append(Segment(rng.integers(0, 600, n).astype(np.int32), rng.random(n) < 0.5, logprobs, versions, routes))
    return Rollout(f"r{seed}", "task é", 3, parts, {"outcome": 0.25}, {"turns": 4.0}, {"end": "done", "tries": 2})


@given(seeds=st.lists(st.integers(0, 99), min_size=1, max_size=4), segments=st.integers(0, 3), routed=st.booleans())
def test_a_group_comes_back_bit_by_bit(tmp_path_factory, seeds, segments, routed):
    store = GroupStore(tmp_path_factory.mktemp("groups"))
    group = [a_rollout(seed, segments, routed) for seed in seeds]
    store.save(7, group)
    back = store.load(7)
    assert len(back) == len(group)
    for one, other in zip(group, back, strict=True):
        assert (one.id, one.task_id, one.group) == (other.id, other.task_id, other.group)
        assert (one.rewards, one.counters, one.info) == (other.rewards, other.counters, other.info)
        for a, b in zip(one.segments, other.segments, strict=True):
            for name in ("ids", "sampled", "logprobs", "versions", "routes"):
                x, y = getattr(a, name), getattr(b, name)
                assert (x is None) == (y is None)
                assert x is None or (x.dtype == y.dtype and np.array_equal(x, y))
    assert not list(store.folder.glob("*.tmp"))


def test_a_finished_group_that_is_damaged_is_an_error_that_names_its_file(tmp_path):
    store = GroupStore(tmp_path / "rl" / "groups")
    store.save(7, [a_rollout(1, 1, False)])
    data = bytearray(store.path(7).read_bytes())
    data[len(data) // 2] ^= 1
    store.path(7).write_bytes(data)
    with pytest.raises(
        DamagedGroup, match=r"000007\.zst is damaged .* put it back from a copy, or remove .*/rl to start RL over"
    ):
        store.load(7)


def test_reading_a_ledger_that_is_being_written_changes_nothing(tmp_path):
    path = tmp_path / "ledger.jsonl"
    path.write_bytes(b'{"kind": "saved", "step": 1}\n{"kind": "sav')
    assert entries_of(path) == [{"kind": "saved", "step": 1}]
    assert path.read_bytes() == b'{"kind": "saved", "step": 1}\n{"kind": "sav'


def test_a_torn_last_line_is_cut_off_and_written_over(tmp_path):
    path = tmp_path / "ledger.jsonl"
    ledger = RlLedger(path)
    ledger.write("plan", digest="abc")
    ledger.write("completed", group=0, version=0)
    ledger.close()
    with open(path, "a") as file:
        file.write('{"kind": "bat')
    again = RlLedger(path)
    assert fold(again.entries).complete == {0: 0}
    again.write("batch", step=0, groups=[0])
    again.close()
    assert fold(RlLedger(path).entries).batches == {0: [0]}


def test_damage_before_the_end_is_an_error(tmp_path):
    path = tmp_path / "ledger.jsonl"
    path.write_text('{"kind": "plan", "dig\n' + json.dumps({"kind": "saved", "step": 1}) + "\n")
    with pytest.raises(ValueError, match="line 1 is damaged"):
        RlLedger(path)


def test_a_group_in_two_batches_is_refused():
    entries = [
        {"kind": "completed", "group": 0, "version": 0},
        {"kind": "batch", "step": 0, "groups": [0]},
        {"kind": "batch", "step": 1, "groups": [0]},
    ]
    with pytest.raises(ValueError, match=r"groups \[0\] at step 1"):
        fold(entries)
    with pytest.raises(ValueError, match="trains step 1 after step -1"):
        fold([entries[0], entries[2]])


def test_rollouts_of_an_unfinished_group_are_kept_and_a_damaged_one_is_made_again(tmp_path):
    store = GroupStore(tmp_path)
    for member in (0, 2):
        store.keep(7, 3, member, a_rollout(member, 1, False))
    store.keep(8, 4, 0, a_rollout(9, 2, True))
    assert store.groups() == []
    kept = store.unfinished_groups()
    assert {group: (one.version, sorted(one.results), one.ended) for group, one in kept.items()} == {
        7: (3, [0, 2], {}),
        8: (4, [0], {}),
    }
    assert kept[7].results[2].id == "r2"
    (damaged,) = tmp_path.rglob("000007-002-*")
    damaged.write_bytes(damaged.read_bytes()[:20])
    assert sorted(store.unfinished_groups()[7].results) == [0]
    store.forget(7)
    assert list(store.unfinished_groups()) == [8]
