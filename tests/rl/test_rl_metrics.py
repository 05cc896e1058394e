"""Figures count rollouts, not segments (promise 4), and add up over the run."""

from __future__ import annotations

import json
import math
from collections import Counter
from itertools import permutations

import numpy as np
import pytest

from etude.core.trace.segment import NO_ROUTE, Rollout, Segment
from etude.rl.metrics import outcome_values, step_values, summarize, versions
from etude.rl.steps import StepRecord, append, read


def piece(versions: list[int], routed: int = 0) -> Segment:
    n = len(versions)
    sampled = np.array(versions) >= 0
    routes = np.full((n, 2, 2), NO_ROUTE, np.uint8)
    routes[:routed] = 1
    return Segment(np.zeros(n, np.int32), sampled, np.zeros(n, np.float32), np.array(versions, np.int32), routes)


def a_rollout(group: int, outcome: float, *pieces: Segment) -> Rollout:
    return Rollout("r", "t", group, list(pieces), {"outcome": outcome}, {"turns": 3.0}, {"tries": 2})


ROLLOUTS = [
    a_rollout(0, 1.0, piece([-1, 4, 4, 5], routed=3), piece([-1, 5, 6])),
    a_rollout(0, 0.0, piece([-1, 6, 6])),
    a_rollout(1, 0.5, piece([-1, 5])),
    a_rollout(1, 0.5, piece([-1, 5])),
]
PARTS = [{"outcome": r.rewards["outcome"], "length": -0.01} for r in ROLLOUTS]


def test_a_step_counts_rollouts_however_many_segments_they_have():
    values = step_values(6, ROLLOUTS, PARTS, [0.5, -0.5, 0.0, 0.0])
    assert values["rollouts"] == 4 and values["summarized"] == 1 and values["segments"] == 5
    assert outcome_values([[1.0, 0.0], [0.5, 0.5]]) == {"pass_rate": 0.25, "uniform_groups": 0.5}
    assert (values["staleness_max"], values["staleness_mean"]) == (2, 1.0)
    assert values["swapped_in_flight"] == 1 and values["in_flight_swaps"] == 2
    assert values["sampled_tokens"] == 9 and values["routed_tokens"] == 3
    assert values["reward"] == pytest.approx(0.49) and values["reward_length"] == pytest.approx(-0.01)
    assert versions(ROLLOUTS[0]) == {4: 2, 5: 2, 6: 1}


def test_self_summaries_are_counted_also_those_that_are_broken():
    one = a_rollout(0, 1.0, piece([-1, 4]), piece([-1, 5]))
    one.counters |= {"summaries": 2.0, "summary_tokens": 30.0, "broken_summaries": 1.0}
    values = step_values(6, [one, *ROLLOUTS], [PARTS[0], *PARTS], [0.0] * 5)
    assert [values[name] for name in ("summaries", "summary_tokens", "broken_summaries")] == [2, 30, 1]
    step = values | {"step": 6.0, "delta_ratio": 0.0, "delta_bytes": 0.0, "drift_k3": 0.0, "drift_p99": 0.0}
    counts = summarize([step, step], Counter(), {})["counts"]
    assert (counts["summaries"], counts["summary_tokens"], counts["broken_summaries"]) == (4, 60, 2)


def test_the_summary_weighs_steps_by_what_they_hold():
    base = step_values(6, ROLLOUTS, PARTS, [0.0] * 4) | {"step": 6.0, "delta_ratio": 0.5, "delta_bytes": 100.0}
    first = base | {"drift_k3": 1e-6, "drift_p99": 0.2}
    second = base | {"drift_k3": 3e-6, "drift_p99": 0.1, "sampled_tokens": 27.0, "step": 7.0}
    summary = summarize([first, second], Counter({5: 4, 4: 2}), {"engine_idle_share": 0.1})
    assert summary["drift"] == {"k3": pytest.approx(2.5e-6), "p99": 0.2}
    assert summary["counts"]["rollouts"] == 8 and summary["counts"]["swapped_in_flight"] == 2
    assert summary["counts"]["tokens_by_version"] == {"4": 2, "5": 4}
    assert summary["delta"] == {"ratio": 0.5, "bytes": 100}
    assert [point["step"] for point in summary["curve"]] == [6, 7]


def test_what_replay_is_worth_is_reported_the_steps_that_were_scored_both_ways():
    base = step_values(6, ROLLOUTS, PARTS, [0.0] * 4) | {"step": 6.0, "delta_ratio": 0.5, "delta_bytes": 100.0}
    plain = base | {"drift_k3": 9.0, "drift_p99": 9.0}
    both = [
        base | {"drift_k3": k3, "drift_p99": p99, "drift_k3_unreplayed": 2 * k3, "drift_p99_unreplayed": 3 * p99}
        for k3, p99 in ((1.0, 0.1), (2.0, 0.2), (6.0, 0.9))
    ]
    result = summarize([*both, plain], Counter(), {})["replay"]
    expected = {"steps": 3, "k3": 3.0, "p99": 0.2, "k3_unreplayed": 6.0, "p99_unreplayed": 0.6}
    assert result == pytest.approx(expected)
    assert summarize([plain], Counter(), {})["replay"] == {}


def test_a_step_without_a_token_has_no_drift_and_does_not_hide_that_of_the_others():
    seen = step_values(6, ROLLOUTS, PARTS, [0.0] * 4) | {"drift_k3": 0.25, "drift_p99": 0.5, "step": 0}
    blind = {**seen, "sampled_tokens": 0.0, "drift_k3": math.nan, "drift_p99": math.nan, "step": 1}
    assert summarize([blind, seen], Counter(), {})["drift"] == {"k3": 0.25, "p99": 0.5}
    assert all(math.isnan(value) for value in summarize([blind], Counter(), {})["drift"].values())


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_a_step_without_a_number_hides_no_other_steps_drift_and_is_counted(order, bad):
    base = step_values(6, ROLLOUTS, PARTS, [0.0] * 4) | {"drift_k3_unreplayed": 1.0, "drift_p99_unreplayed": 1.0}
    steps = [base | {"drift_k3": k3, "drift_p99": p99, "step": 0} for k3, p99 in ((0.25, 0.5), (0.75, 2.0), (bad, bad))]
    summary = summarize([steps[place] for place in order], Counter(), {})
    assert summary["drift"] == {"k3": 0.5, "p99": 2.0, "steps_without": 1.0}
    assert summary["replay"]["p99"] == 1.25 and summary["replay"]["k3"] == 0.5


def test_a_step_with_a_number_that_is_not_finite_is_kept_as_strict_json_and_read_back(tmp_path):
    record = StepRecord(0, [1], {"drift_k3": math.nan, "reward": 0.5}, {}, [{"outcome": math.inf}], [math.nan])
    append(tmp_path / "steps.jsonl", record)
    line = (tmp_path / "steps.jsonl").read_text()
    assert json.loads(line)["values"] == {"drift_k3": None, "reward": 0.5} and "NaN" not in line
    (found,) = read(tmp_path / "steps.jsonl")
    assert math.isnan(found.values["drift_k3"]) and found.values["reward"] == 0.5 and math.isnan(found.advantages[0])
