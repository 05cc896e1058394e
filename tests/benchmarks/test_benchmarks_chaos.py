"""`benchmarks/killing/verify.py` finds each kind of broken promise, and nothing in a run that kept them; who is to be killed is by the seed."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.core.trace.segment import Rollout
from etude.rl.steps import StepRecord

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from killing import verify
from killing.plan import SHARES, plan
from killing.points import OWNER
from killing.victims import Process, victims

TASKS = ["a", "b", "c", "d"]


def a_ledger() -> list[dict[str, Any]]:
    """Two steps of two groups, with a kill in the second."""
    return [
        {"kind": "plan", "digest": "x"},
        *({"kind": "admitted", "group": n, "task": TASKS[n], "version": n // 2} for n in range(4)),
        {"kind": "batch", "step": 0, "groups": [0, 2]},
        {"kind": "trained", "step": 0, "digest": "one"},
        {"kind": "batch", "step": 1, "groups": [1, 3]},
        {"kind": "trained", "step": 1, "digest": "two"},
        {"kind": "trained", "step": 1, "digest": "two"},
    ]


def records() -> list[StepRecord]:
    return [StepRecord(0, [0, 2], {}, {"0": 5}, [], []), StepRecord(1, [1, 3], {}, {"0": 2, "1": 3}, [], [])]


def a_rollout(**changes: Any) -> Rollout:
    made = Rollout("a#0.0", "a", 0, [], {"outcome": 1.0}, {}, {"verdict": ""})
    for name, value in changes.items():
        setattr(made, name, value)
    return made


GRADED = {"task": "a", "key": "k", "score": 1.0, "reason": ""}


def test_a_run_that_kept_its_promises_has_nothing_to_tell() -> None:
    entries = a_ledger()
    assert not verify.trained_once(entries, TASKS, 2)
    assert not verify.same_weights(entries)
    assert not verify.steps_told(entries, records(), 2)
    assert not verify.versions_in_order(entries, records(), 1)
    assert not verify.rewards_explained({0: [a_rollout()]}, [GRADED])
    assert not verify.verdicts_repeated([GRADED, {"task": "a", "key": "z", "fault": "SandboxDied"}], {"k": 1.0})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda e: e[7].update(groups=[1, 0]), "group 0 is trained twice"),
        (lambda e: e[7].update(groups=[1]), r"differ in \[3\]"),
        (lambda e: e[7].update(step=2), "step 2 is batch number 1"),
        (lambda e: e.pop(7), "1 batches for 2 steps"),
        (lambda e: e[1].update(task="d"), "group 0 was admitted as d, not a"),
        (lambda e: e.__delitem__(slice(8, 10)), "step 1 was decided and never trained"),
    ],
)
def test_a_task_trained_twice_or_not_at_all_is_found(change: Any, message: str) -> None:
    entries = a_ledger()
    change(entries)
    with pytest.raises(AssertionError, match=message):
        raise AssertionError(verify.trained_once(entries, TASKS, 2))


def test_a_step_that_came_to_other_weights_is_found() -> None:
    entries = a_ledger()
    entries[-1]["digest"] = "three"
    assert verify.same_weights(entries) == ["step 1 came to 2 weights"]


def test_a_step_without_its_line_or_with_another_steps_is_found() -> None:
    assert verify.steps_told(a_ledger(), records()[:1], 2) == ["step 1 has no line"]
    assert verify.steps_told(a_ledger(), [records()[0], StepRecord(1, [1, 2], {}, {}, [], [])], 2)


def test_a_version_that_goes_back_or_is_too_old_or_of_the_future_is_found() -> None:
    entries = a_ledger()
    entries[4]["version"] = 0
    assert verify.versions_in_order(entries, records(), 1) == ["group 3 was admitted at version 0 after 1"]
    assert verify.versions_in_order(a_ledger(), records(), 0) == ["step 1 trained tokens of versions [0]"]
    assert verify.versions_in_order(a_ledger(), [StepRecord(0, [], {}, {"1": 1}, [], [])], 5)


@pytest.mark.parametrize("changes", [{"rewards": {"outcome": 0.0}}, {"info": {"verdict": "died"}}, {"task_id": "b"}])
def test_a_reward_that_no_one_graded_is_found(changes: dict[str, Any]) -> None:
    assert verify.rewards_explained({0: [a_rollout(), a_rollout(**changes)]}, [GRADED])
    unfit = a_rollout(rewards={"outcome": 0.0}, info={"verdict": f"{verify.EXPORT}: 9 MB"})
    assert not verify.rewards_explained({0: [unfit]}, [])


def test_a_verdict_that_the_same_files_do_not_get_in_peace_is_found() -> None:
    assert verify.verdicts_repeated([GRADED], {"k": 0.0})


def test_time_lost_is_a_kills_stretch_and_the_next_ones_against_the_quiet_ones() -> None:
    lengths = [2, 2, 10, 2, 5, 2, 2, 30, 2]  # the engine dies in the third, which is felt in the fifth too
    trained = {0: 100.0}
    for step, length in enumerate(lengths, 1):
        trained[step] = trained[step - 1] + length
    kills = [(105.0, "engine"), (129.0, "raylet"), (130.0, "engine")]
    found = verify.time_lost(trained, kills)
    assert found["engine"] == {"alone": 1, "median_s": 17 - 3 * 2, "most_s": 11.0}
    assert "raylet" not in found, "it was not alone"
    assert found["none"] == {"alone": 4, "median_s": 2.0, "most_s": 2.0}, "the stretches after a kill are not quiet"
    assert verify.time_lost({}, kills)["none"]["alone"] == 0


@given(seed=st.integers(0, 999), kills=st.integers(0, 300), steps=st.integers(3, 300))
def test_a_plan_is_its_seeds_alone_and_goes_forward(seed: int, kills: int, steps: int) -> None:
    made = plan(seed, kills, steps)
    assert made == plan(seed, kills, steps) and len(made) == kills
    assert [kill.step for kill in made] == sorted(kill.step for kill in made)
    assert all(0 <= kill.step < steps - 2 or steps == 3 for kill in made)
    assert all(kill.point is None or OWNER[kill.point] == kill.kind for kill in made)
    assert kills < len(SHARES) or {kill.kind for kill in made} == set(SHARES)


def test_the_whole_plan_kills_every_kind_and_in_every_window() -> None:
    made = plan(0, 210, 240)
    assert set(Counter(kill.kind for kill in made)) == set(SHARES)
    assert {kill.point for kill in made} - {None} == set(OWNER)


def test_vllm_is_killed_where_it_is_the_engine_and_nowhere_else() -> None:
    import chaos

    assert "vllm" not in chaos.shares_of({}) and "vllm" not in chaos.shares_of({"engine": {"kind": "etude"}})
    shares = chaos.shares_of({"engine": {"kind": "vllm", "vllm": {"python": "p"}}})
    assert {kill.kind for kill in plan(0, 20, 40, shares)} == set(SHARES) | {"vllm"}


def test_runs_of_several_seeds_stand_side_by_side_and_a_seed_run_again_takes_its_own_place(tmp_path: Path) -> None:
    import chaos

    run_of = lambda seed, kills: {"settings": {"seed": seed}, "kills": kills, "steps": 40, "by_kind": {"engine": kills}}
    path = tmp_path / "chaos.json"
    for seed, kills in ((0, 3), (1, 5), (0, 4)):
        chaos.record(run_of(seed, kills), path)
    document = json.loads(path.read_text())
    assert (document["kills"], document["steps"], document["by_kind"]) == (9, 80, {"engine": 9})
    assert document["runs"]["0"]["kills"] == 4


def test_victims_are_identified_by_what_they_are_and_never_strangers() -> None:
    def one(pid: int, parent: int, *words: str, space: str = "host", inner: int = 0, state: str = "S") -> Process:
        return Process(pid, parent, state, words, space, inner or pid)

    zygote = ("/usr/bin/python3", "-P", "-s", "-S", "-B", "-c", "exec(...)")
    there = [
        one(1, 0, "init"),
        one(9, 1, "python", "driver.py"),
        one(10, 9, "/ray/gcs/gcs_server", "--log"),
        one(11, 9, "/ray/raylet/raylet", "--socket"),
        one(12, 11, "ray::TrainerProcess.train"),
        one(13, 11, "ray::EngineProcess"),
        one(14, 11, "ray::IDLE"),
        one(15, 9, *zygote),
        one(16, 15, *zygote, space="a", inner=1),
        one(17, 16, *zygote, space="a", inner=4),
        one(18, 15, *zygote, space="b", inner=1, state="Z"),
        one(19, 9, "python", "-m", "etude.agent.code_index.process", "socket"),
        one(20, 1, "ray::EngineProcess"),
        one(22, 11, "ray::VllmProcess"),
        one(23, 22, "/env/bin/python", "/etude/engine/vllm/program/etude_vllm_serve.py", "{}"),
        one(24, 23, "VLLM::EngineCor"),
        one(25, 24, "VLLM::Worker"),
        one(26, 23, "python", "-c", "from multiprocessing.resource_tracker import main"),
        one(21, 11, "ray::HostActor.ask"),
    ]
    found = victims({each.pid: each for each in there}, 9)
    assert {kind: [each.pid for each in some] for kind, some in found.items()} == {
        "controller": [9], "gcs": [10], "raylet": [11], "trainer": [12], "engine": [13, 22],
        "vllm": [23, 24, 25], "zygote": [15], "sandbox": [16], "command": [17],
        "index": [19], "host": [21],
    }  # fmt: skip
    assert victims({each.pid: each for each in there}, 8) == {}
