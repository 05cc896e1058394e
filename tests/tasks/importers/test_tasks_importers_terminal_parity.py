"""Rewards and parsed tests equal those of Harbor's and Terminal-Bench's own code for the same files: recorded, and computed again."""

from __future__ import annotations

import base64
import json
import sys
from typing import Any

import pytest
from environments import require_python
from terminal_cases import DECISIONS, asked, cases

from etude.tasks.graders.reward import NoReward, Reward, of_json, of_text
from etude.tasks.test_logs.log import UnreadableLog
from etude.tasks.test_logs.terminal_bench import PARSERS

CASES = [json.loads(line) for line in DECISIONS.read_text(encoding="utf-8").splitlines()]


def reward_of(case: dict[str, Any]) -> Reward | None:
    """As `reward_in` chooses between the files."""
    for name, read in (("reward.json", of_json), ("reward.txt", of_text)):
        if name in case:
            try:
                return read(base64.b64decode(case[name]))
            except NoReward:
                return None
    return None


def difference(case: dict[str, Any], theirs: dict[str, Any]) -> str:
    """Empty where the decision is the same; else what differs, in a word that the test knows or doesn't."""
    if "parser" in case:
        try:
            tests = PARSERS[case["parser"]](case["printed"])
        except UnreadableLog:
            return "" if "error" in theirs else f"unreadable here: {case}"
        return "" if tests == theirs.get("tests") else f"{tests} here, {theirs} there: {case}"
    mine = reward_of(case)
    if mine is None:
        if "error" in theirs:
            return ""
        # Harbor keeps an object without `reward` as metrics alone: nothing that a score could be.
        if theirs["rewards"].get("reward", 0) > sys.float_info.max:  # an integer that no mean can be made of
            return "no score either"
        return "no score either" if "reward" not in theirs["rewards"] else f"no reward here: {case}, {theirs}"
    ours = {"reward": mine.value, **mine.metrics}
    return "" if theirs.get("rewards") == ours else f"{ours} here, {theirs} there: {case}"


def test_recorded_decisions_of_harbor_and_terminal_bench_are_ours_too():
    assert len(CASES) == len(cases()) > 150
    differences = [difference(case, case["decided"]) for case in CASES]
    assert {word for word in differences if word} == {"no score either"}
    assert sum("rewards" in case["decided"] for case in CASES) > 15
    assert sum(bool(case["decided"].get("tests")) for case in CASES) > 60


@pytest.mark.nightly
def test_the_tools_themselves_decide_as_they_did():
    _, decided = asked(require_python("harbor"), cases())
    differences = [difference(case, word) for case, word in zip(cases(), decided, strict=True)]
    assert {word for word in differences if word} == {"no score either"}


@pytest.mark.parametrize(
    "data, complaint",
    [
        (b"NaN", "reward is nan, a reward is finite"),
        (b"1e309", "reward is inf"),
        (b'{"reward": -Infinity}', "reward is -inf"),
        (b'"1"', "reward is no number but '1'"),
        (b'{"x": 1}', "an object without 'reward': it has x"),
        (b"", "is empty"),
        (b"{", "is no JSON"),
        (b"[" * 50_000, "is no JSON"),
        (b"9" * 400, "too many digits"),
        (b"1" * (10 << 20), "more than 65536 bytes"),
        (b"\xff", "is no JSON"),
    ],
)
def test_what_is_no_reward_says_why(data: bytes, complaint: str):
    with pytest.raises(NoReward, match=complaint):
        of_json(data)


@pytest.mark.parametrize(
    "data, complaint", [(b"nan", "is nan"), (b"-inf", "is -inf"), (b"", "empty"), (b"yes", "no number but b'yes'")]
)
def test_a_text_that_is_no_reward_says_why(data: bytes, complaint: str):
    with pytest.raises(NoReward, match=complaint):
        of_text(data)


def test_a_reward_beyond_the_scale_is_kept_within_it_and_reported_as_it_is():
    assert (of_json(b"7").score, of_json(b"7").value) == (1.0, 7.0) and of_text(b"-3").score == 0.0
    assert of_json(b'{"reward": 0.5, "speed": 9}') == Reward(0.5, {"speed": 9.0})
