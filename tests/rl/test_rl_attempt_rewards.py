"""What is measured when an attempt is made stays with its rollout; a judge without a word leaves none."""

import asyncio
from types import SimpleNamespace

import pytest

from etude.core.trace.entry import SessionHeader
from etude.core.trace.segment import Rollout
from etude.core.trace.session import Session
from etude.evaluate.bench.grading.judged_attempt import judged_attempt
from etude.rl.attempts import add_rewards

TASK = SimpleNamespace(category="features", files={"a.py": "x = 1\n"})
SETUP = SimpleNamespace(harness=SimpleNamespace(effort="high"))


class Word:
    """A rubric's reward that says this."""

    def __init__(self, score):
        self.score_of_all = score
        self.seen = []

    async def score(self, attempt, task):
        shown = judged_attempt(attempt.outcome.session, task.files, attempt.files)
        self.seen.append((shown.request, shown.diff, attempt.rollout.id))
        return self.score_of_all


def earned(reward):
    rollout = Rollout("r#0.1", "t", 0, [], {"outcome": 1.0}, {}, {"seconds": {"all": 9.0}})
    session = Session(SessionHeader("s", facts={"instruction": "tidy up"}))
    attempt = SimpleNamespace(
        rollout=rollout, files={"a.py": b"x = 1\n# y = 2\n"}, seconds={"agent": 4.0}, outcome=SimpleNamespace(session=session)
    )  # fmt: skip
    asyncio.run(add_rewards(attempt, TASK, SETUP, reward))  # type: ignore[arg-type]
    return rollout


def test_effort_seconds_and_quality_are_kept():
    rollout = earned(None)
    assert rollout.info == {"seconds": {"agent": 4.0, "all": 9.0}, "effort": "high", "category": "features"}
    assert rollout.rewards == {"outcome": 1.0, "quality": -1.0}


@pytest.mark.parametrize(("score", "kept"), [(0.0, {"judge": 0.0}), (0.7, {"judge": 0.7}), (None, {})])
def test_the_judge_sees_the_request_and_the_change(score, kept):
    word = Word(score)
    assert earned(word).rewards == {"outcome": 1.0, "quality": -1.0} | kept
    ((request, diff, subject),) = word.seen
    assert request == "tidy up" and "+# y = 2" in diff and subject == "r#0.1"
