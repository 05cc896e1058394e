"""Behaviour never pays for failure; the weights of a step are those of its schedule, and a resumed run mixes as the first did."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.rl.advantage import advantages
from etude.rl.rewards.library import COMPONENTS
from etude.rl.rewards.mix import Mix, MixedFile, RewardsChanged, check_mixed, ever_weighed, mix_at, mix_rewards
from etude.rl.settings import RlSettings

MANNERS = [one for one in COMPONENTS if one.kind != "exact"]
amounts = st.floats(0, 1e6)


@st.composite
def rollouts(draw, outcome):
    """Values before any weight, however well or badly behaved."""
    signs = {one.name: 1.0 if one.kind == "bonus" else -1.0 for one in MANNERS}
    return {"outcome": draw(outcome), "length": 0.0} | {name: sign * draw(amounts) for name, sign in signs.items()}


weights = st.fixed_dictionaries({one.name: amounts for one in MANNERS})
groups = st.lists(rollouts(st.sampled_from([0.0, 1.0])), min_size=2, max_size=8)


@given(groups, weights, st.floats(0.01, 0.99))
def test_no_failed_rollout_outranks_one_that_passed_through_behaviour(group, weights, cap):
    rewards = [sum(parts.values()) for parts in mix_rewards(group, Mix(weights, cap, {}))]
    shared = advantages(rewards)
    for values, reward, advantage in zip(group, rewards, shared, strict=True):
        assert reward >= 1.0 - cap - 1e-9 if values["outcome"] else reward <= 1e-12
        for other, theirs in zip(group, shared, strict=True):
            assert not (values["outcome"] == 0.0 and other["outcome"] == 1.0 and advantage >= theirs)


@given(rollouts(st.floats(0, 1)), rollouts(st.floats(0, 1)), weights, st.floats(0.01, 0.99))
def test_outcomes_further_apart_than_the_cap_keep_their_order(one, other, weights, cap):
    low, high = sorted((one, other), key=lambda values: values["outcome"])
    under, over = (sum(parts.values()) for parts in mix_rewards([low, high], Mix(weights, cap, {})))
    if high["outcome"] - low["outcome"] > cap + 1e-9 and low["outcome"] < 1.0:
        assert over > under


@given(groups, weights, st.floats(0.01, 0.99))
def test_penalties_never_raise_and_bonuses_never_lower_a_reward(group, weights, cap):
    for values, parts in zip(group, mix_rewards(group, Mix(weights, cap, {})), strict=True):
        manners = {one.name: one.kind for one in MANNERS}
        assert all(part <= 0.0 for name, part in parts.items() if manners.get(name) == "penalty")
        assert all(part >= 0.0 for name, part in parts.items() if manners.get(name) == "bonus")
        assert values["outcome"] or parts.get("judge", 0.0) == 0.0


def test_the_worked_example_of_the_rule():
    mix = Mix({"unfinished_todos": 0.02, "judge": 0.1}, 0.3, {})
    solved = {"outcome": 1.0, "unfinished_todos": -40.0, "judge": 0.9}
    failed = {"outcome": 0.0, "unfinished_todos": 0.0, "judge": 0.9}
    first, second = (sum(parts.values()) for parts in mix_rewards([solved, failed], mix))
    assert (first, second) == (pytest.approx(0.79), 0.0)


def test_a_silent_judge_leaves_the_component_out_of_the_whole_group():
    mix = Mix({"judge": 0.2}, 0.3, {})
    judged, silent = {"outcome": 1.0, "judge": 0.2}, {"outcome": 1.0}
    assert [sum(parts.values()) for parts in mix_rewards([judged, silent], mix)] == [1.0, 1.0]
    assert [sum(parts.values()) for parts in mix_rewards([judged, judged], mix)] == pytest.approx([1.04, 1.04])


def test_a_weighed_component_without_its_counter_is_an_error_that_says_which():
    with pytest.raises(ValueError, match="weighs thought_comments.*needs thought_comments"):
        mix_rewards([{"outcome": 1.0}], Mix({"thought_comments": 0.1}, 0.3, {}))
    with pytest.raises(ValueError, match="weighs kl.*a scored reference"):
        mix_rewards([{"outcome": 1.0}], Mix({"kl": 0.1}, 0.3, {}))


def scheduled(**changes):
    """Settings with a schedule of {step: weights}."""
    schedule = {f"at-{step[1:]}": {"from_step": int(step[1:]), "weights": w} for step, w in changes.items()}
    return RlSettings.model_validate({"rewards": {"schedule": schedule}})


def test_components_come_are_reweighted_and_go_at_their_steps():
    settings = scheduled(
        s9={"thought_comments": 0.0, "kl": 0.1}, s3={"thought_comments": 0.05}, s6={"thought_comments": 0.2}
    )
    weight = lambda step: mix_at(step, settings).weights.get("thought_comments")
    assert [weight(step) for step in (0, 2, 3, 5, 6, 8, 9)] == [None, None, 0.05, 0.05, 0.2, 0.2, None]
    assert mix_at(20, settings).weights == {"kl": 0.1, "length": 0.01, "unfinished_todos": 0.02, "untested_edit": 0.02}
    assert ever_weighed("kl", settings) and not ever_weighed("kl", RlSettings())


@pytest.mark.parametrize(
    ("rewards", "objection"),
    [
        ({"weights": {"untested_edit": -0.1}}, "untested_edit is -0.1"),
        ({"schedule": {"a": {"from_step": 3}, "b": {"from_step": 3}}}, "two entries of the schedule have from_step 3"),
        ({"schedule": {"a": {"from_step": 3, "weights": {"judge": 0.1}}}}, "rewards.judge is empty"),
        ({"weights": {"outcome": 2.0}}, "outcome"),
    ],
)
def test_a_schedule_that_can_not_be_meant_is_refused(rewards, objection):
    with pytest.raises(ValueError, match=objection):
        RlSettings.model_validate({"rewards": rewards})


def test_a_resumed_run_mixes_as_the_first_did(tmp_path):
    settings = scheduled(s2={"thought_comments": 0.05})
    path = tmp_path / "mixed.jsonl"
    first = MixedFile(path)
    mixes = [first.at(step, settings) for step in range(4)]
    with path.open("a") as file:
        file.write('{"step": 4, "wei')  # killed while it wrote
    again = MixedFile(path)
    assert [again.at(step, settings) for step in range(5)][:4] == mixes
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [row["step"] for row in rows] == [0, 1, 2, 3, 4]
    assert [row["weights"].get("thought_comments") for row in rows] == [None, None, 0.05, 0.05, 0.05]


def test_a_schedule_may_change_what_comes_but_not_what_was(tmp_path):
    path = tmp_path / "mixed.jsonl"
    first = MixedFile(path)
    for step in range(4):
        first.at(step, RlSettings())
    check_mixed(path, scheduled(s4={"shell_only": 0.1}))
    assert MixedFile(path).at(4, scheduled(s4={"shell_only": 0.1})).weights["shell_only"] == 0.1
    for changed in (scheduled(s3={"shell_only": 0.1}), RlSettings.model_validate({"length": {"q": 0.5}})):
        with pytest.raises(RewardsChanged, match="from_step 5 or later"):
            check_mixed(path, changed)
