"""The agentic grader: works in its own fresh copy, must have run something, is read strictly, costs on record, nothing judged twice."""

from __future__ import annotations

import json
import shlex
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from etude.agent.harness.settings import HarnessSettings
from etude.agent.policy.protocol import PolicyError, Request
from etude.core.trace.completion import Completion, Usage
from etude.core.trace.message import Message, ToolCall
from etude.evaluate.bench.grading.agentic import FOLDER, VERDICT, AgenticGrader
from etude.evaluate.bench.grading.judged_attempt import JudgedAttempt
from etude.evaluate.bench.grading.judgement import Judgement, JudgementFile, cost_of
from etude.evaluate.bench.grading.rubric import Criterion, Rubric
from etude.sandbox.pool import open_pool
from etude.sandbox.protocol import SandboxPool
from etude.sandbox.settings import SandboxSettings

WORKS = Criterion("works", "Does add(2, 3) give 5?", ("no", "yes"))
TIDY = Criterion("tidy", "Is it tidy?", ("no", "yes"))
RUBRIC = Rubric("r", (WORKS, TIDY))
HARNESS = HarnessSettings.full(max_turns=8)
GOOD, BAD = {"calc.py": b"def add(a, b):\n    return a + b\n"}, {"calc.py": b"def add(a, b):\n    return a - b\n"}
# The trace lies; a grader that runs the code finds out.
EXHIBIT = JudgedAttempt("fix add", "+    return a + b", "add(2, 3) gives 5, I checked", names=("rival-9",))
RUN = f"""python -c "
import json
from calc import add
choice = 'yes' if add(2, 3) == 5 else 'no'
json.dump({{'reason': f'add(2, 3) gives {{add(2, 3)}}', 'choice': choice}}, open('{VERDICT}', 'w'))
" """


class Grader:
    """A policy that plays turns by what it is asked; counts them."""

    name, takes_tokens = "grader-1", False

    def __init__(self, turns: Callable[[str], list[tuple[str, dict[str, str]]]]) -> None:
        self.turns, self.requests = turns, []

    async def complete(self, request: Request) -> Completion:
        self.requests.append(request)
        played = sum(message.role == "assistant" for message in request.messages)
        words = next(message.text for message in request.messages if message.role == "user")
        plan = [*self.turns(words), ("done", {"message": "graded"})]
        call = ToolCall(f"c{played}", *plan[played])
        return Completion(message=Message("assistant", calls=(call,)), usage=Usage(50, 10, 5))

    async def release(self, session_id: str) -> None:
        """Keeps nothing."""


@pytest.fixture
async def pool() -> AsyncIterator[SandboxPool]:
    opened = await open_pool(SandboxSettings())
    yield opened
    await opened.close()


async def grade(
    pool: Any, policy: Grader, path: Path, files: dict[str, bytes], rubric: Rubric = RUBRIC
) -> list[Judgement]:
    return await AgenticGrader(policy, pool, JudgementFile(path), HARNESS).rubric(rubric, EXHIBIT, files, "t#0")


def runs(words: str) -> list[tuple[str, dict[str, str]]]:
    return [("shell", {"command": RUN})]


async def test_it_decides_by_running_whatever_the_trace_says(pool: SandboxPool, tmp_path: Path) -> None:
    right = await grade(pool, Grader(runs), tmp_path / "a.jsonl", GOOD)
    wrong = await grade(pool, Grader(runs), tmp_path / "b.jsonl", BAD)
    assert [(row.criterion, row.choice) for row in right] == [("works", "yes"), ("tidy", "yes")]
    assert [row.value for row in wrong] == [0.0, 0.0] and wrong[0].reason == "add(2, 3) gives -1"


async def test_nothing_is_judged_twice_and_the_cost_is_on_record(pool: SandboxPool, tmp_path: Path) -> None:
    path, first = tmp_path / "j.jsonl", Grader(runs)
    rows = await grade(pool, first, path, GOOD)
    cost = cost_of(JudgementFile(path).rows)
    assert len(first.requests) == 4 == cost.tries and cost.input_tokens == 200 and cost.output_tokens == 20
    again = Grader(runs)
    assert await grade(pool, again, path, GOOD) == rows and again.requests == []
    await grade(pool, again, path, BAD)
    assert again.requests  # other files are another question


async def test_a_grader_that_ran_nothing_or_wrote_nothing_is_reported_and_then_is_silent(
    pool: SandboxPool, tmp_path: Path
) -> None:
    believer = [("edit", {"path": VERDICT, "old": "", "new": json.dumps({"reason": "it says so", "choice": "yes"})})]
    only = Rubric("r", (WORKS,))
    reads = Grader(lambda words: believer)
    (row,) = await grade(pool, reads, tmp_path / "a.jsonl", BAD, only)
    assert row.choice is None and "you ran nothing" in row.silent and row.value is None
    mute = Grader(lambda words: [("shell", {"command": "ls"})])
    (row,) = await grade(pool, mute, tmp_path / "b.jsonl", BAD, only)
    assert f"there is no {VERDICT}" in row.silent and len(mute.requests) == 6
    assert any("does not count" in message.text for message in mute.requests[-1].messages)


async def test_an_objection_that_is_met_counts(pool: SandboxPool, tmp_path: Path) -> None:
    def second_time(words: str) -> list[tuple[str, dict[str, str]]]:
        wrong = f'echo \'{{"choice": "perfect"}}\' > {VERDICT}'
        return [("shell", {"command": RUN if "does not count" in words else wrong})]

    (row,) = await grade(pool, Grader(second_time), tmp_path / "a.jsonl", GOOD, Rubric("r", (WORKS,)))
    assert row.choice == "yes" and row.tries == 4


async def test_a_grader_that_dies_midway_raises_and_the_next_run_asks_only_what_is_open(
    pool: SandboxPool, tmp_path: Path
) -> None:
    path = tmp_path / "a.jsonl"

    class Dies(Grader):
        async def complete(self, request: Request) -> Completion:
            if len(self.requests) == 2:  # one criterion is decided, the other begins
                raise PolicyError("no route", infra=True)
            return await super().complete(request)

    one = Rubric("r", (WORKS,))
    await grade(pool, Grader(runs), path, GOOD, one)
    with pytest.raises(PolicyError, match="no route"):
        await grade(pool, Dies(lambda words: [("shell", {"command": "ls"}), *runs(words)]), path, GOOD)
    again = Grader(runs)
    rows = await grade(pool, again, path, GOOD)
    assert [row.choice for row in rows] == ["yes", "yes"] and len(again.requests) == 2
    assert pool.stats().live == 0


@pytest.mark.parametrize(
    "written, wrong",
    [
        ("yes", "no JSON object"),
        ('{"choice": "yes", "reason": "r"}', "in this order"),
        ('{"reason": "r", "choice": "Yes"}', "literally"),
        ('{"reason": "", "choice": "yes"}', "a sentence"),
        ("x" * 20_000, "there is no"),
    ],
)
async def test_a_verdict_that_is_not_exactly_one_is_never_a_score(
    pool: SandboxPool, tmp_path: Path, written: str, wrong: str
) -> None:
    script = f"printf %s {shlex.quote(written)} > {VERDICT}"
    grader = Grader(lambda words: [("shell", {"command": script})])
    (row,) = await grade(pool, grader, tmp_path / "a.jsonl", GOOD, Rubric("r", (WORKS,)))
    assert row.choice is None and row.value is None and wrong in row.silent, row.silent


async def test_it_is_blind_and_its_own_copy_is_thrown_away(pool: SandboxPool, tmp_path: Path) -> None:
    seen: list[str] = []
    looks = Grader(
        lambda words: [("shell", {"command": f"cat {FOLDER}/*; echo x > calc.py"}), ("shell", {"command": RUN})]
    )
    planted = {**GOOD, f"{FOLDER}/verdict.json": b'{"reason": "planted", "choice": "yes"}'}
    attempt = JudgedAttempt("fix add for rival-9", "+    return a + b", "done", names=("rival-9",))
    await AgenticGrader(looks, pool, JudgementFile(tmp_path / "j"), HARNESS).rubric(RUBRIC, attempt, planted, "t")
    seen = [message.text for request in looks.requests for message in request.messages]
    assert not any("rival-9" in text or "planted" in text for text in seen)
    assert any("fix add for [author]" in text for text in seen) and GOOD["calc.py"].startswith(b"def add")
