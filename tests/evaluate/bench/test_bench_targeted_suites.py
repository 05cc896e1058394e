"""Targeted evals: an agent that behaves scores 1, one that misbehaves in just that way 0, one that does nothing 0; real attempts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from etude.agent.harness.settings import HarnessSettings
from etude.core.trace.entry import SessionHeader
from etude.core.trace.session import Session
from etude.evaluate.bench.grading.rubric import read_rubric
from etude.evaluate.bench.outcome import Outcome
from etude.evaluate.bench.runs.recovery import TRIGGER, WITHOUT, OneArm, require_trigger, summary_lifts
from etude.evaluate.bench.runs.table import PolicyResult
from etude.evaluate.bench.scores import scores
from etude.evaluate.bench.suites.targeted import names, targeted_suite
from etude.evaluate.bench.targeted.cases import CaseError, behaviours, cases, play, scripts, unsound
from etude.evaluate.bench.targeted.checks import CHECKS, Work, run_checks
from etude.evaluate.bench.targeted.grader import NAME, TargetedGrader
from etude.rollout.attempt import task_facts
from etude.rollout.interjection import Interjection
from etude.sandbox.pool import open_pool
from etude.sandbox.protocol import SandboxPool
from etude.sandbox.settings import SandboxSettings

HARNESS = HarnessSettings(
    preset="full", max_turns=20, max_session_tokens=20_000, max_tool_bytes=4000, max_tool_lines=100
)


@pytest.fixture
async def pool() -> AsyncIterator[SandboxPool]:
    opened = await open_pool(SandboxSettings())
    yield opened
    await opened.close()


def harness(behaviour: str) -> HarnessSettings:
    return targeted_suite(behaviour).manifest.apply_limits(HARNESS)


@pytest.mark.sample(4)
@pytest.mark.parametrize("behaviour", behaviours())
async def test_who_behaves_scores_one_and_who_misbehaves_in_just_that_way_zero(
    behaviour: str, pool: SandboxPool
) -> None:
    tasks = cases(behaviour)
    assert len(tasks) >= 5 and all(len(scripts(task)) >= 2 for task in tasks)
    assert await unsound(tasks, pool, harness(behaviour)) == []


async def test_long_work_is_summed_up_on_the_way_and_the_other_arm_is_not(pool: SandboxPool) -> None:
    task, summed = cases("recovery")[0], harness("recovery")
    whole = summed.model_copy(update={TRIGGER: 0})
    one, other = [await play(task, "expert", pool, settings) for settings in (summed, whole)]
    assert one.outcome.counters["summaries"] >= 2 and other.outcome.counters["summaries"] == 0
    assert one.verdict.passed and other.verdict.passed
    require_trigger(summed, "p@medium")
    with pytest.raises(OneArm, match="p@medium never sums its sessions up"):
        require_trigger(whole, "p@medium")


def test_what_summing_up_is_worth_is_paired_by_task() -> None:
    def outcomes(*scores: float) -> list[Outcome]:
        return [Outcome(f"t{n}", 0, "targeted", "recovery", score, 100, 5, 5, 1.0) for n, score in enumerate(scores)]

    def row(name: str, *found: Outcome) -> PolicyResult:
        settings = {"max_session_tokens": 500, TRIGGER: 0 if name.endswith(WITHOUT) else 50}
        facts = {"name": name, "effort": "low", "settings": settings}
        return PolicyResult(f"{name}@low", facts, list(found), 1, len(found))

    rows = [
        row("p", *outcomes(1, 1, 1, 0)),
        row(f"p{WITHOUT}", *outcomes(1, 0, 1, 0)),
        row("alone", *outcomes(1, 1, 1, 1)),
    ]
    found = {one.key: scores(one.outcomes) for one in rows}
    (comparison,) = summary_lifts(rows, found, found["p@low"].counts(), resamples=200, seed=0)
    assert (comparison["with"], comparison["without"], comparison["points"], comparison["tasks"]) == (
        "p@low",
        f"p{WITHOUT}@low",
        25.0,
        4,
    )
    assert comparison["tokens_with"] == comparison["tokens_without"] == 100.0 and comparison["trigger_tokens"] == 50
    assert summary_lifts(rows[:1], found, found["p@low"].counts(), resamples=200, seed=0) == []


@pytest.mark.parametrize("name", names())
def test_each_is_a_suite_with_its_graders_and_rubrics(name: str) -> None:
    suite = targeted_suite(name)
    assert suite.name == name and suite.manifest.description and suite.digest == targeted_suite(name).digest
    assert NAME in suite.graders
    for task_id in suite.ids:
        task, rubric = suite.task(task_id), suite.rubric(task_id)
        assert task.grader == NAME and set(task.hidden["check"]) <= set(CHECKS)
        assert rubric is None or read_rubric(rubric).criteria
        assert not any(str(path).startswith("scripts") for path in task.files)


def test_an_unknown_eval_is_answered_with_those_there_are() -> None:
    with pytest.raises(CaseError, match="there is no targeted eval 'eagre'; there are eager"):
        targeted_suite("targeted-eagre")


async def test_files_alone_are_refused_for_they_do_not_say_how_the_agent_worked(pool: SandboxPool) -> None:
    with pytest.raises(ValueError, match="judged by its session"):
        await TargetedGrader().grade(cases("eager")[0], {}, pool)


def test_agents_md_and_surroundings_reach_the_agent() -> None:
    by_id = {task.id: task_facts(task) for task in cases("instructions")}
    assert '<instructions path="AGENTS.md">' in by_id["instructions/agents-docstring"].instructions
    assert "on a watch" in by_id["instructions/system-brief"].surroundings
    plain = by_id["instructions/request-limits"]
    assert plain.instructions == "" == plain.surroundings


def test_a_check_of_another_name_is_refused_by_it() -> None:
    task = cases("eager")[0]
    strange = replace(task, hidden={"check": {"polite": True}})
    with pytest.raises(KeyError, match="polite"):
        run_checks(Work(strange, {}, Session(SessionHeader("s"))))


@pytest.mark.parametrize(
    "row, wrong",
    [
        ({"after": "lunch", "text": "x"}, "comes after turns"),
        ({"count": 0, "text": "x"}, "count from 1"),
        ({"manner": "stop", "text": "x"}, "as steer or queue"),
        ({"after": "edits", "text": " "}, "has no text"),
    ],
)
def test_words_of_a_person_that_make_no_sense_are_refused(row: dict[str, object], wrong: str) -> None:
    with pytest.raises(ValueError, match=wrong):
        Interjection.from_json(row, "t")
