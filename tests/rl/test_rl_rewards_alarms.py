"""Each cause is named when it is there, and a run that learns gives no alarm."""

import numpy as np
import pytest

from etude.core.trace.segment import Rollout
from etude.rl.metrics import tool_shares
from etude.rl.rewards.alarms import AlarmMonitor

QUIET, AFTER = 40, 25
BASE = {
    "pass_rate": 0.4, "reward": 0.35, "reward_outcome": 0.4, "rollouts": 64.0, "sampled_tokens": 64 * 400.0, "share_shell": 0.2,
    "share_edit": 0.3, "share_read": 0.5, "broken_per_turn": 0.05, "raw_thought_comments": -0.5, "raw_length": -3.0,
}  # fmt: skip
NOISE = {
    "pass_rate": 0.03, "reward": 0.002, "sampled_tokens": 800.0, "share_shell": 0.02, "share_edit": 0.02, "share_read": 0.02,
    "broken_per_turn": 0.01, "raw_thought_comments": 0.05, "raw_length": 0.1,
}  # fmt: skip


def causes(later, seed=0):
    """Causes named in a run that is quiet first and then shifts by `later`."""
    rng = np.random.default_rng(seed)
    watch, found = AlarmMonitor(), []
    for step in range(QUIET + AFTER):
        values = {name: value + NOISE.get(name, 0.0) * rng.normal() for name, value in BASE.items()}
        if step >= QUIET:
            values = {name: value + later.get(name, 0.0) for name, value in values.items()}
        found += [alarm.cause for alarm in watch.look(values)]
    return found


def test_a_quiet_run_gives_no_alarm():
    assert [causes({}, seed) for seed in range(5)] == [[]] * 5


@pytest.mark.parametrize(
    ("later", "cause"),
    [
        ({"reward": 0.04}, "reward_without_outcome"),
        ({"share_shell": 0.6, "share_read": -0.1}, "tool_takes_over"),
        ({"share_edit": -0.25, "share_read": 0.02}, "tool_collapses"),
        ({"sampled_tokens": -64 * 200.0, "pass_rate": -0.15}, "shorter_and_worse"),
        ({"broken_per_turn": 0.1}, "broken_calls"),
        ({"raw_thought_comments": -0.5}, "component"),
    ],
)
def test_a_cause_is_named_once_when_it_is_there(later, cause):
    for seed in range(3):
        found = causes(later, seed)
        assert found.count(cause) == 1 and set(found) <= {cause, "component"}


@pytest.mark.parametrize(
    "later",
    [
        {"pass_rate": 0.3, "reward": 0.34, "reward_outcome": 0.3},  # all of it learned, behaviour too
        {"sampled_tokens": -64 * 200.0},  # shorter, as good as before
        {"broken_per_turn": -0.04, "raw_thought_comments": 0.4},  # cleaner
    ],
)
def test_improvement_is_no_alarm(later):
    assert [causes(later, seed) for seed in range(3)] == [[]] * 3


def test_the_shares_of_a_batch_are_of_all_its_calls():
    counters = [{"calls": 3.0, "calls_shell": 3.0, "calls_edit": 0.0, "turns": 2.0, "malformed_turns": 1.0},
                {"calls": 1.0, "calls_shell": 0.0, "calls_edit": 1.0, "turns": 2.0, "malformed_calls": 1.0}]  # fmt: skip
    rollouts = [Rollout("r", "t", 0, [], {"outcome": 0.0}, one) for one in counters]
    assert tool_shares(rollouts) == {"share_shell": 0.75, "share_edit": 0.25, "broken_per_turn": 0.5}
    assert tool_shares([Rollout("r", "t", 0, [], {"outcome": 0.0})]) == {}
