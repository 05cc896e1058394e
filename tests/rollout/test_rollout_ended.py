"""What an agent left comes back whole or not at all, and is graded as if nothing had happened between (promises 6, 9)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.agent.harness.agent import AgentOutcome
from etude.agent.harness.settings import HarnessSettings
from etude.agent.policy.scripted import ScriptedPolicy
from etude.core.trace.entry import Entry, EntryRoutes, EntryTokens, SessionHeader
from etude.core.trace.session import Recorder, Session
from etude.rl.rollout_state import RolloutSlot
from etude.rl.store import UngradedStore
from etude.rollout.attempt import AttemptSetup, attempt
from etude.rollout.retry import InfraFault
from etude.rollout.settings import AttemptSettings
from etude.rollout.ungraded_attempt import DamagedUngradedFile, UngradedAttempt, pack_ungraded, tags_of, unpack_ungraded
from etude.sandbox.errors import SandboxDied
from etude.tasks.task import Task, Verdict

TASK = Task("tally é", "debugging", "one", "mend it", {"a.py": "one", "b.py": "two"}, ("true",), "adds")
TAGS = {"group": 3, "member": 1, "attempt": 0, "version": 7}
SLOT = RolloutSlot(3, 1, TASK.id, ended=True)
SECONDS = {"create": 0.25, "agent": 1.5, "policy": 1.0, "tools": 0.5, "export": 0.125}


def an_ended(files: dict[str, bytes], seed: int = 0, turns: int = 3, objection: str = "") -> UngradedAttempt:
    rng = np.random.default_rng(seed)
    recorder, last = Recorder(SessionHeader(f"{TASK.id}#3.1.1", TASK.id, facts={"a": [1, None]})), None
    for turn in range(turns):
        n = int(rng.integers(1, 9))
        ids = rng.integers(0, 600, n + 2).tolist()
        logprobs = (-rng.random(n).astype(np.float32)).tolist()
        rows = rng.integers(0, 8, (n, 2, 2)).astype(np.uint8)
        last = recorder.append(
            "completion",
            {"text": f"turn {turn} \ud800"},
            parent=None if turn == turns - 1 else last,
            tokens=EntryTokens(ids, 1, logprobs, [turn] * n),
            routes=EntryRoutes(0, rows) if turn in (0, turns - 1) else None,
        )
    session = recorder.session
    outcome = AgentOutcome("done", "mended", session.segments(), {"turns": float(turns)}, session, {"all": 1.5})
    return UngradedAttempt(f"{TASK.id}#3.1", outcome, files, objection, 2, "host-1", 1234.5, SECONDS)


def same(one: UngradedAttempt, other: UngradedAttempt) -> None:
    assert replace(one, outcome=other.outcome) == other
    assert replace(one.outcome, segments=[], session=other.outcome.session) == replace(other.outcome, segments=[])
    assert one.outcome.session.header == other.outcome.session.header
    for a, b in zip(one.outcome.session.entries, other.outcome.session.entries, strict=True):
        assert replace(a, routes=None) == replace(b, routes=None)
    for a, b in zip(one.outcome.segments, other.outcome.segments, strict=True):
        for name in ("ids", "sampled", "logprobs", "versions", "routes"):
            x, y = getattr(a, name), getattr(b, name)
            assert (x is None) == (y is None) and (x is None or (x.dtype == y.dtype and np.array_equal(x, y))), name


trees = st.dictionaries(
    st.sampled_from(["a.py", "b.py", "c/d.txt", "odd\udcff"]), st.binary(max_size=40) | st.just(b"one"), max_size=4
)


@given(files=trees, seed=st.integers(0, 99), turns=st.integers(1, 4), objection=st.sampled_from(["", "too large"]))
def test_an_ended_attempt_comes_back_with_its_tree_and_its_tokens(files, seed, turns, objection):
    ended = an_ended(files, seed, turns, objection)
    packed = pack_ungraded(ended, TASK, TAGS)
    assert tags_of(packed) == TAGS
    same(unpack_ungraded(packed, TASK, TAGS), ended)


def test_the_tasks_own_files_are_not_held_a_second_time():
    big = replace(TASK, files={"big.bin": "".join(map(str, np.random.default_rng(0).integers(0, 9, 200_000)))})
    ended = an_ended({"big.bin": big.files["big.bin"].encode(), "new": b"1"})
    packed = pack_ungraded(ended, big, TAGS)
    assert len(packed) < 4_000
    assert unpack_ungraded(packed, big, TAGS).files == ended.files


def test_damage_at_any_byte_and_any_cut_is_noticed():
    packed = pack_ungraded(an_ended({"a.py": b"mended", "b.py": b"two"}), TASK, TAGS)
    for at in range(len(packed)):
        with pytest.raises(DamagedUngradedFile):
            unpack_ungraded(packed[:at] + bytes([packed[at] ^ 0x10]) + packed[at + 1 :], TASK, TAGS)
        with pytest.raises(DamagedUngradedFile):
            tags_of(packed[:at])


@pytest.mark.parametrize(
    ("task", "tags"),
    [
        (replace(TASK, id="other"), TAGS),
        (replace(TASK, files={**TASK.files, "b.py": "three"}), TAGS),
        *((TASK, TAGS | {name: 5}) for name in TAGS),
    ],
)
def test_what_another_task_place_or_version_left_is_refused(task, tags):
    packed = pack_ungraded(an_ended({"a.py": b"mended"}), TASK, TAGS)
    with pytest.raises(DamagedUngradedFile, match="rolled out again"):
        unpack_ungraded(packed, task, tags)


def test_a_store_gives_what_is_whole_and_of_its_name_and_removes_the_rest(tmp_path: Path):
    store = UngradedStore(tmp_path)
    for member in range(4):
        assert store.keep(replace(SLOT, member=member), 7, an_ended({"a.py": b"%d" % member}), TASK, 1 << 20)
    store.keep(
        replace(SLOT, member=3, attempt=2), 7, an_ended({"a.py": b"3"}), TASK, 1 << 20
    )  # in the stead of attempt 0's
    (tmp_path / "000003-000-a0-v7.zst").write_bytes((tmp_path / "000003-001-a0-v7.zst").read_bytes())
    (tmp_path / "000003-002-a0-v7.tmp").write_bytes(b"torn")
    assert store.read_attempts() == {3: (7, {1: 0, 2: 0, 3: 2})}
    assert len(list(tmp_path.iterdir())) == 3
    assert store.load(SLOT, 7, TASK).files == {"a.py": b"1"}
    with pytest.raises(FileNotFoundError):
        store.load(SLOT, 8, TASK)
    store.keep(replace(SLOT, member=2), 9, an_ended({"a.py": b"later"}), TASK, 1 << 20)
    assert store.read_attempts() == {3: (9, {2: 0})}  # of a group that was begun twice, the later beginning's
    store.forget(3, 1)
    store.forget(3)
    assert store.read_attempts() == {} and not list(tmp_path.iterdir())


def test_what_is_too_large_is_not_kept_nor_is_what_it_replaces(tmp_path: Path):
    store = UngradedStore(tmp_path)
    assert store.keep(SLOT, 7, an_ended({"a.py": b"small"}), TASK, 4_000)
    large = np.random.default_rng(0).bytes(10_000)
    assert not store.keep(SLOT, 7, an_ended({"a.py": large}), TASK, 4_000)
    assert not list(tmp_path.iterdir())


class Adds:
    """A grader that fails as often as it is set to; the file gives the verdict."""

    def __init__(self, faults: int = 0) -> None:
        self.faults, self.asked = faults, 0

    async def grade(self, task: Task, files: dict[str, bytes], pool: object) -> Verdict:
        self.asked += 1
        if self.asked <= self.faults:
            raise SandboxDied("gone")
        return Verdict(float(files["a.py"]), reason="as it says")


def a_setup(grader: Adds) -> AttemptSetup:
    limits = AttemptSettings(attempts=3, first_delay_s=0.0)
    return AttemptSetup(ScriptedPolicy([]), None, {"adds": grader}, HarnessSettings(), settings=limits)  # type: ignore[arg-type]


async def test_what_was_left_is_graded_without_an_agent_and_a_fault_of_ours_tries_the_grading_alone_again():
    grader, heard = Adds(faults=2), []
    ended = unpack_ungraded(pack_ungraded(an_ended({"a.py": b"1.0"}), TASK, TAGS), TASK, TAGS)
    found = await attempt(TASK, a_setup(grader), group=3, on_phase=lambda phase, host: heard.append(phase), ended=ended)
    assert grader.asked == 3 and set(heard) == {"grading"}
    rollout = found.rollout
    assert (rollout.id, rollout.group, rollout.rewards) == (f"{TASK.id}#3.1", 3, {"outcome": 1.0})
    assert (
        rollout.info["tries"] == 2
        and rollout.info["faults"] == ["SandboxDied"] * 2
        and rollout.info["host"] == "host-1"
    )
    assert found.seconds["all"] == pytest.approx(1.875 + found.seconds["grade"])
    assert rollout.segments is ended.outcome.segments


async def test_a_grading_that_can_not_be_made_is_a_fault_and_never_a_score():
    with pytest.raises(InfraFault, match="SandboxDied after 3 tries"):
        await attempt(TASK, a_setup(Adds(faults=9)), ended=an_ended({"a.py": b"1.0"}))


async def test_files_that_could_not_be_taken_are_no_graders_business():
    grader = Adds()
    found = await attempt(TASK, a_setup(grader), ended=an_ended({}, objection="the files can't be exported: too large"))
    assert grader.asked == 0 and found.rollout.rewards == {"outcome": 0.0}


def test_a_session_that_was_held_is_the_session(tmp_path: Path):
    back = unpack_ungraded(pack_ungraded(an_ended({}), TASK, TAGS), TASK, TAGS).outcome.session
    assert isinstance(back, Session) and all(isinstance(entry, Entry) for entry in back.entries)
    assert [entry.data["text"] for entry in back.entries] == [f"turn {turn} \ud800" for turn in range(3)]
