"""Each rule is raised by a history that has what it warns of, and by none that has not."""

import json
import os
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.core.trace.group_file import pack_group
from etude.core.trace.segment import Rollout
from etude.evaluate.report.advisories.collect import advisories, judge
from etude.evaluate.report.advisories.collect import history as read_history
from etude.evaluate.report.advisories.history import RECENT, RunState, Steps
from etude.evaluate.report.advisories.shown import advisories_html

STEP_S = 10.0
HEALTHY = {
    "rollouts": 128.0, "pass_rate": 0.4, "reward": 0.35, "uniform_groups": 0.2, "staleness_mean": 1.0, "staleness_max": 2.0,
    "retried": 0.0, "drift_k3": 7e-4, "drift_p99": 0.19, "entropy": 0.12, "wait_s": 5.0, "train_s": 10.0,
}  # fmt: skip


def rl(count: int = 40, noise: float = 0.02, seed: int = 0, **curves: Any) -> Steps:
    """A run's steps; a curve is a number, or a function of the step."""
    dice = random.Random(seed)
    rows = []
    for step in range(count):
        row = {"step": step, **HEALTHY, "reward": 0.2 + 0.004 * step + dice.gauss(0, noise)}
        row |= {name: curve(step) if callable(curve) else curve for name, curve in curves.items()}
        rows.append(row)
    return Steps([1000 + STEP_S * step for step in range(count)], rows)


def history(steps: Steps | None = None, **fields: Any) -> RunState:
    steps = steps or rl()
    given = {"recipe": {"rl": {"max_staleness": 2}}, "now": steps.times[-1] + STEP_S, "alive": True}
    given |= {"ends": Counter(done=200), "attempts": 200}
    return RunState({"rl": steps}, **(given | fields))


def names(found: RunState) -> list[str]:
    return [advisory.name for advisory in judge(found)]


def late(value: float, before: float, since: int = 40 - RECENT):
    return lambda step: value if step >= since else before


def slow_steps(extra_s: float, at: int = 20) -> Steps:
    steps = rl()
    return Steps([t + (extra_s if i >= at else 0) for i, t in enumerate(steps.times)], steps.rows)


RAISED = {
    "stall": history(now=1000 + 39 * STEP_S + 61),
    "stalled_before": history(slow_steps(100.0), now=2000.0, alive=False),
    "reward_drift": history(rl(reward=lambda s: (0.5 if s < 32 else 0.3) + 0.01 * (s % 3))),
    "mismatch": history(rl(drift_k3=late(0.02, 1e-3))),
    "drift": history(rl(alarms=lambda s: float(s == 33))),
    "not_a_number": history(summaries={"rl": {"drift": {"k3": float("nan")}}}),
    "unreachable_tasks": history(summaries={"rl": {"unreachable": ["task t (group 3) is set aside: no image"]}}),
    "infra_faults": history(rl(retried=late(10.0, 0.0))),
    "infra_faults, given up": history(lost=Counter(HostLost=20)),
    "infra_faults, of a bench": RunState(attempts=0, lost=Counter(CapacityExhausted=3)),
    "abort_storm": history(faults=Counter(PolicyError=80)),
    "entropy_collapse": history(rl(entropy=late(0.01, 0.12))),
    "loss_diverged": RunState({"sft": rl(reward=0.0, mean_loss=lambda s: 1.0 if s < 30 else 2.0)}),
    "judge_missing, no judge": RunState(rubrics=4),
    "judge_missing, silent": RunState(rubrics=4, judge="http://127.0.0.1:1#m"),
    "damaged_files": history(damaged={"rl/groups/000001.zst": "3 bytes"}),
    "judge_missing": history(judged={"mini, answer/clear": (80, 20), "mini, answer/brief": (100, 0)}),
    "uniform_groups": history(rl(uniform_groups=late(0.6, 0.2))),
    "truncation": history(ends=Counter(done=140, max_turns=60)),
    "staleness": history(rl(staleness_mean=late(1.8, 1.0))),
    "balance": history(rl(wait_s=40.0)),
}
QUIET = {
    "stall": [
        history(now=1000 + 39 * STEP_S + 59),
        history(now=9999.0, alive=False),
        history(Steps(rl().times, rl().rows, finished=True), now=9999.0),
        history(rl(5), now=9999.0),
    ],
    "stalled_before": [history(slow_steps(45.0)), history(rl(400, reward=0.3), now=5000.0)],
    "reward_drift": [history(rl(reward=lambda s: 0.1 + 0.012 * s)), history(rl(reward=0.4)), history(rl(10, reward=late(0, 1, 5)))],
    "mismatch": [history(rl(drift_k3=0.009, drift_p99=0.9)), history(rl(drift_k3=late(1e-3, 0.02)))],
    "drift": [history(rl(alarms=lambda s: float(s == 9))), history(rl(alarms=0.0))],
    "unreachable_tasks": [history(summaries={"rl": {"steps": 40}})],
    "not_a_number": [history(summaries={"rl": {"drift": {"k3": None}, "steps": 40}})],
    "infra_faults": [history(rl(retried=2.0)), history(faults=Counter(SandboxLost=5)), history(lost=Counter(HostLost=9))],
    "damaged_files": [history()],
    "abort_storm": [history(faults=Counter(PolicyError=40))],
    "entropy_collapse": [history(rl(entropy=late(0.01, 0.12), pass_rate=late(0.95, 0.4))), history(rl(entropy=late(0.05, 0.12)))],
    "loss_diverged": [history(rl(mean_loss=late(2.0, 1.0))), RunState({"sft": rl(mean_loss=lambda s: 3.0 / (s + 1))})],
    "judge_missing": [history(judged={"mini, answer/clear": (90, 10), "none": (0, 0)}), history(),
                      RunState(rubrics=4, judge="m", judged={"a": (9, 1)}), RunState(judge="m")],
    "uniform_groups": [history(rl(uniform_groups=0.5))],
    "truncation": [history(ends=Counter(done=160, max_turns=40)), history(ends=Counter(max_turns=20))],
    "staleness": [history(rl(staleness_mean=1.5, staleness_max=2.0)), history(rl(staleness_mean=2.0), recipe={})],
    "balance": [history(rl(wait_s=20.0))],
}  # fmt: skip


@pytest.mark.parametrize("name", RAISED)
def test_a_history_that_has_it_raises_it_alone(name: str) -> None:
    assert names(RAISED[name]) == [name.partition(",")[0]]


@pytest.mark.parametrize("name", QUIET)
def test_a_history_just_inside_the_bound_does_not(name: str) -> None:
    assert [name for found in QUIET[name] if name in names(found)] == []


def test_a_healthy_run_is_shown_nothing() -> None:
    assert judge(history()) == []


def test_hints_wait_until_there_is_no_alarm() -> None:
    tuning = {"uniform_groups": 0.9, "wait_s": 90.0}
    assert names(history(rl(**tuning))) == ["uniform_groups", "balance"]
    assert names(history(rl(**tuning, drift_p99=2.0))) == ["mismatch"]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_figure_that_is_no_number_is_an_alarm(value: float) -> None:
    [found] = judge(history(rl(drift_k3=late(value, 1e-3))))
    assert found.name == "mismatch" and json.dumps(found.to_json(), allow_nan=False)
    assert names(RunState({"base": rl(reward=0.0, mean_loss=late(value, 1.0))})) == ["loss_diverged"]


def test_a_run_with_a_drift_alarm_is_not_called_healthy() -> None:
    tuning = {"uniform_groups": 0.9, "wait_s": 90.0}
    quiet = [advisory.to_json() for advisory in judge(history(rl(**tuning)))]
    alarms = [{"step": 9, "text": "component: old"}, {"step": 33, "text": "broken_calls: more"}]
    loud = history(rl(**tuning, alarms=lambda s: float(s in (9, 33))), summaries={"rl": {"alarms": alarms}})
    [found] = judge(loud)
    assert "healthy" in advisories_html(quiet, []) and "healthy" not in advisories_html([found.to_json()], [])
    assert found.said == "drift alarm at step 33: broken_calls: more"


@given(st.integers(0, 10_000), st.floats(0.0, 0.012))
def test_a_steady_climb_with_noise_seldom_raises_drift(seed: int, slope: float) -> None:
    dice = random.Random(seed)
    raised = sum(
        "reward_drift" in names(history(rl(reward=lambda s: 0.1 + slope * s + dice.gauss(0, 0.03)))) for _ in range(12)
    )
    assert raised <= 3  # three sigma of 30 steps: two in a hundred at most


def test_a_leap_names_the_grader_and_a_fall_does_not() -> None:
    leap = judge(history(rl(reward=lambda s: (0.3 if s < 32 else 0.8) + 0.01 * (s % 3))))
    fall = judge(RAISED["reward_drift"])
    assert "leapt" in leap[0].said and "grader" in leap[0].remedy
    assert "fell" in fall[0].said and "grader" not in fall[0].remedy


def test_every_advisory_has_evidence_a_remedy_and_a_place_to_look() -> None:
    for found in RAISED.values():
        [advisory] = judge(found)
        document = advisory.to_json()
        assert (
            advisory.evidence
            and advisory.remedy
            and (advisory.look or advisory.name == "not_a_number")  # which is in no table
            and document["why"].endswith(advisory.name.replace("_", "-"))
        )


def test_the_page_escapes_what_it_shows_and_links_only_to_what_is_there() -> None:
    [document] = [advisory.to_json() for advisory in judge(history(judged={"<script>": (0, 9)}))]
    assert "<script>" not in advisories_html([document], []) and "href" not in advisories_html([document], [])
    [drift] = [advisory.to_json() for advisory in judge(RAISED["mismatch"])]
    assert (
        'href="#asynchrony"' in advisories_html([drift], ["Asynchrony"]) and advisories_html([], ["Asynchrony"]) == ""
    )


def test_what_the_rules_read_is_read_from_a_runs_files(tmp_path: Path) -> None:
    figure = {"avg": None, "ci95": None, "decided": 1, "not_decided": 9, "tasks": 1}
    (tmp_path / "judged.json").write_text(json.dumps({"policies": {"mini@low": {"answer/clear": figure}}}))
    rows = [{"kind": "metric", "stage": "rl", "time": 10.0 * n, "step": n, "values": HEALTHY} for n in range(20)]
    (tmp_path / "events.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "lock").write_text(f"{os.getpid()}\n")
    found = {advisory.name: advisory for advisory in advisories(tmp_path, now=400.0)}
    assert set(found) == {"stall", "judge_missing"} and found["stall"].evidence["waited_s"] == 210.0
    end = {"kind": "progress", "stage": "rl", "time": 191.0, "done": 20, "total": 20, "info": {}}
    with (tmp_path / "events.jsonl").open("a") as file:
        file.write(json.dumps(end) + "\n")
    assert [advisory.name for advisory in advisories(tmp_path, now=400.0)] == ["judge_missing"], (
        "what follows the last step"
    )


def test_how_the_latest_rollouts_ended_is_counted_from_their_groups(tmp_path: Path) -> None:
    groups = tmp_path / "rl" / "groups"
    groups.mkdir(parents=True)
    ends = [
        {"end": "max_turns", "tries": 1},
        {"end": "done", "tries": 3},
        {"end": "done", "tries": 2, "faults": ["PolicyError"]},
    ]
    rollouts = [Rollout(str(n), "t", 0, [], {"outcome": 0.0}, {}, info) for n, info in enumerate(ends)]
    (groups / "000000.zst").write_bytes(pack_group(rollouts))
    read = read_history(tmp_path, now=0.0)
    assert (
        read.ends == {"max_turns": 1, "done": 2}
        and read.faults == {"fault": 2, "PolicyError": 1}
        and read.attempts == 3
    )


def test_what_was_given_up_and_what_is_damaged_reach_the_alarms(tmp_path: Path) -> None:
    groups = tmp_path / "rl" / "groups"
    groups.mkdir(parents=True)
    (groups / "000004.zst").write_bytes(pack_group([Rollout("0", "t", 4, [], {"outcome": 0.0}, {}, {"end": "done"})]))
    (groups / "000005.zst").write_bytes(b"bad")
    reason = "t#4.0: HostLost after 4 tries: host a is lost"
    entries = [{"kind": "fault", "group": group, "member": 0, "reason": reason} for group in (1, 4)]
    (tmp_path / "rl" / "ledger.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    (tmp_path / "recipe.toml").write_text("[rl]\ngroup_size = 1\n")
    read = read_history(tmp_path, now=0.0)
    assert read.lost == {"HostLost": 1} and list(read.damaged) == ["rl/groups/000005.zst"], (
        "group 1 is not among the latest"
    )
    assert [advisory.name for advisory in advisories(tmp_path)] == ["infra_faults", "damaged_files"]


def test_a_suite_s_run_knows_its_rubrics_and_which_of_its_faults_were_made_good(tmp_path: Path) -> None:
    (tmp_path / "conditions.json").write_text(json.dumps({"shared": {"report": {"rubrics": 3, "judge": None}}}))
    (tmp_path / "policies").mkdir()
    outcome = {"task_id": "t", "attempt": 0, "score": 1.0, "reason": ""}
    (tmp_path / "policies" / "p@low.jsonl").write_text(json.dumps(outcome) + "\n")
    lost = [{"policy": "p@low", "task": "t", "attempt": n, "class": "HostLost", "message": "gone"} for n in (0, 1)]
    (tmp_path / "faults.jsonl").write_text("".join(json.dumps(row) + "\n" for row in lost))
    read = read_history(tmp_path, now=0.0)
    assert read.lost == {"HostLost": 1} and read.rubrics == 3 and read.judge == ""
    assert [advisory.name for advisory in advisories(tmp_path)] == ["infra_faults", "judge_missing"]
