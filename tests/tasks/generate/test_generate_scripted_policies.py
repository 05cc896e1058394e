"""The expert: competent demonstrations win, incompetent ones are spelled perfectly, and one move never occurs."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from pydantic import ValidationError

from etude.agent.harness.agent import AgentOutcome
from etude.agent.harness.edits.matching import replace
from etude.agent.harness.settings import HarnessSettings
from etude.tasks.generate import plan
from etude.tasks.generate.demonstration import demonstrate
from etude.tasks.generate.exercises.memory_sandbox import run_script
from etude.tasks.generate.exercises.source import LEVELS, ExerciseSource
from etude.tasks.generate.exercises.trial import outcomes
from etude.tasks.generate.plan import CARELESS, PLANNERS, ExpertPlan, Planner, make_plan
from etude.tasks.generate.settings import SessionSettings
from etude.tasks.task import Task

SETTINGS = HarnessSettings()
SUMMARIZING = HarnessSettings(summary_trigger_tokens=110, max_turns=14)


def _calls(outcome: AgentOutcome) -> list[tuple[str, str]]:
    """(tool, result) in order; `done` has no result."""
    entries = outcome.session.of("completion", "tool_result")
    names = [c["name"] for e in entries if e.type == "completion" for c in e.data["message"].get("calls", [])]
    results = [e.data["text"] for e in entries if e.type == "tool_result"]
    return list(zip(names, [*results, ""], strict=False))


def _behaves(task: Task, files: dict[str, str]) -> bool:
    """Whether every hidden call returns its value, judged in this process."""
    for call in task.hidden["calls"]:
        script = (
            f"print({call['module']!r} and repr(__import__({call['module']!r}).{call['function']}(*{call['args']!r})))"
        )
        result = run_script({**files, "probe.py": script}, "probe.py")
        if result.rc or result.out.decode().strip() != repr(call["want"]):
            return False
    return True


@pytest.mark.sample(5)
@pytest.mark.parametrize("level", [name for name, level in LEVELS.items() if level.winnable])
@pytest.mark.parametrize("harness", [SETTINGS, SUMMARIZING], ids=["plain", "summarizing"])
def test_every_competent_demonstration_ends_with_the_reference(
    source: ExerciseSource, level: str, harness: HarnessSettings
) -> None:
    for number, task_id in enumerate(source.ids("train", level=level)[:60]):
        task = source.task(task_id)
        outcome, files, competent = demonstrate(task, number, competence=1.0, settings=harness)
        assert competent
        assert outcome.reason == "done", (task_id, outcome.reason)
        assert all(files[path] == text for path, text in task.solution.items()), task_id
        assert _behaves(task, files), task_id


def test_competent_demonstrations_pass_their_visible_tests_when_they_run_them(source: ExerciseSource) -> None:
    for number, task_id in enumerate(source.ids("train", level="one-bug")[:60]):
        calls = _calls(demonstrate(source.task(task_id), number, competence=1.0, settings=SETTINGS)[0])
        assert all(result == "pass" for tool, result in calls if tool == "test")


@pytest.mark.sample(3)
@pytest.mark.parametrize("level", LEVELS)
def test_no_demonstration_edits_again_after_a_failed_test(source: ExerciseSource, level: str) -> None:
    """The winning move of the discovery level: an edit, a failed test, another edit."""
    tested = 0
    for number, task_id in enumerate(source.ids("train", level=level)[:150]):
        for settings in (SETTINGS, SUMMARIZING):
            outcome, _, _ = demonstrate(source.task(task_id), number, competence=0.5, settings=settings)
            edited = failed = False
            for tool, result in _calls(outcome):
                failed = failed or (tool == "test" and edited and result != "pass")
                assert not (tool == "edit" and failed), task_id
                edited = edited or tool == "edit"
            tested += failed
    if level == "relapse":
        assert tested > 20  # the situation does occur, only the move does not


def _planned(made: ExpertPlan, *tools: str) -> list[tuple[str, dict[str, str]]]:
    return [call for turn in made.turns for call in turn.calls if call[0] in tools]


@pytest.mark.parametrize("level", LEVELS)
def test_no_plan_edits_behind_a_test_that_followed_an_edit(source: ExerciseSource, level: str) -> None:
    """Stronger than the promise, for it asks of no test whether it failed; so it holds whatever the tests answer."""
    behind = 0
    for task_id in source.ids("train", level=level)[:40]:
        task = source.task(task_id)
        for seed in range(100):
            tools = [tool for tool, _ in _planned(make_plan(task, seed, 0.3), "edit", "test")]
            first = tools.index("edit") if "edit" in tools else len(tools)
            tested = tools.index("test", first) if "test" in tools[first:] else len(tools)
            assert "edit" not in tools[tested:], (task_id, seed, tools)
            behind += tested < len(tools)
    assert behind > 100


def test_every_way_to_go_wrong_exists_and_occurs_as_often_as_its_weight_says(
    source: ExerciseSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: Counter[str] = Counter()
    for way in CARELESS:
        assert all(callable(getattr(planner, way)) for planner in PLANNERS.values())
        monkeypatch.setattr(Planner, way, lambda planner, way=way: taken.update([way]) or [])
    for level, several in (("two-bugs", True), ("one-bug", False), ("relapse", False)):
        task = source.task(source.ids("train", level=level)[0])
        taken.clear()
        assert not any(make_plan(task, seed, 0.0).competent for seed in range(2000))
        weights = {way: weight for way, weight in CARELESS.items() if several or way != "half"}
        assert taken.keys() == weights.keys()
        for way, weight in weights.items():
            assert taken[way] / 2000 == pytest.approx(weight / sum(weights.values()), abs=0.04), (level, way)


@pytest.mark.parametrize("level", LEVELS)
def test_second_thoughts_take_the_last_edit_back_and_nothing_else(
    source: ExerciseSource, level: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "CARELESS", {"second_thoughts": 1.0})
    for task_id in source.ids("train", level=level)[:30]:
        task = source.task(task_id)
        for seed in range(10):
            made = make_plan(task, seed, 0.0)
            *rest, last, back = [arguments for _, arguments in _planned(made, "edit")]
            assert len(rest) == len(made.parts) - 1
            assert back == {"path": last["path"], "old": last["new"], "new": last["old"]}
            finished = [turn.part for turn in made.turns if turn.part is not None]
            assert finished == list(made.parts)  # a summary counts the undone part as done: the undo is none
        outcome, files, _ = demonstrate(task, seed, competence=0.0, settings=SUMMARIZING)
        assert outcome.reason == "done" and outcome.counters["failed_calls"] == 0, task_id
        expected = dict(task.files)
        for edit in rest:
            expected[edit["path"]] = replace(expected[edit["path"]], edit["old"], edit["new"]).text
        # What was appended (level write-test) leaves its line's end behind.
        assert {path: text.rstrip("\n") for path, text in files.items()} == {
            path: text.rstrip("\n") for path, text in expected.items()
        }, task_id


def test_no_competent_demonstration_wins_the_discovery_level(source: ExerciseSource) -> None:
    for number, task_id in enumerate(source.ids("train", level="relapse")[:60]):
        task = source.task(task_id)
        outcome, files, _ = demonstrate(task, number, competence=1.0, settings=SETTINGS)
        assert outcome.reason == "done"
        assert run_script(files, "check.py").rc == 1
        first = task.hidden["parts"][0]
        assert files[first["path"]] == task.solution[first["path"]]  # half the work was done well


def test_the_second_bug_of_the_discovery_level_shows_only_after_the_first_is_mended(source: ExerciseSource) -> None:
    for task_id in source.ids("train", level="relapse")[:40]:
        task = source.task(task_id)
        first, second = task.hidden["parts"]
        assert run_script(task.files, "check.py").out.decode() == f"fail {first['name']}\n"
        mended = {**task.files, first["path"]: task.solution[first["path"]]}
        assert run_script(mended, "check.py").out.decode() == f"fail {second['name']}\n"


@pytest.mark.parametrize("level", LEVELS)
def test_a_careless_edit_does_the_work_or_takes_it_back_or_silences_it(source: ExerciseSource, level: str) -> None:
    """Nothing that a demonstration writes is drawn at random: what SFT learns of bad judgement is a choice of moves."""
    for task_id in source.ids("train", level=level)[:30]:
        task = source.task(task_id)
        texts = {part[key] for part in task.hidden["parts"] for key in ("old", "new")}
        for seed in range(40):
            for _, arguments in _planned(make_plan(task, seed, 0.0), "edit"):
                assert arguments["old"] in texts, task_id
                assert arguments["new"] in texts or arguments["new"].strip() in ("pass", "return 0"), task_id


@pytest.mark.parametrize("level", LEVELS)
def test_bad_judgement_is_spelled_perfectly(source: ExerciseSource, level: str) -> None:
    """Every edit of an incompetent session matches exactly once, and few of them happen to be right."""
    right = 0
    for number, task_id in enumerate(source.ids("train", level=level)[:80]):
        task = source.task(task_id)
        outcome, files, _ = demonstrate(task, number + 7_000_000, competence=0.0, settings=SETTINGS)
        assert outcome.reason == "done"
        assert outcome.counters["failed_calls"] == 0, (task_id, _calls(outcome))
        assert outcome.counters["loose_edits"] == 0
        right += all(files[path] == text for path, text in task.solution.items())
    assert right <= 4


def test_competence_is_the_share_of_good_sessions_and_at_least_two_in_five(source: ExerciseSource) -> None:
    task = source.task(source.ids("train")[0])
    share = sum(make_plan(task, seed, 0.5).competent for seed in range(1000)) / 1000
    assert share == pytest.approx(0.5, abs=0.05)
    with pytest.raises(ValidationError):
        SessionSettings(competence=0.3)


def test_a_plan_is_pure_in_task_and_seed(source: ExerciseSource) -> None:
    task = source.task(source.ids("train")[3])
    assert make_plan(task, 5, 0.5) == make_plan(task, 5, 0.5)
    assert len({json.dumps([t.calls for t in make_plan(task, seed, 0.5).turns]) for seed in range(40)}) > 4


def test_todos_are_finished_by_the_competent_and_left_by_some_others(source: ExerciseSource) -> None:
    left = opened = 0
    for number, task_id in enumerate(source.ids("train", level="two-bugs")[:60]):
        task = source.task(task_id)
        good, _, _ = demonstrate(task, number, competence=1.0, settings=SETTINGS)
        bad, _, _ = demonstrate(task, number, competence=0.0, settings=SETTINGS)
        opened += good.counters["todos_opened"] > 0
        assert good.counters["todos_unfinished"] == 0
        left += bad.counters["todos_unfinished"] > 0
    assert opened > 15
    assert left > 5


def test_a_summary_names_what_is_done_and_what_is_left(source: ExerciseSource) -> None:
    seen: set[str] = set()
    for number, task_id in enumerate(source.ids("train", level="two-bugs")[:30]):
        task = source.task(task_id)
        early = HarnessSettings(summary_trigger_tokens=30 + number * 4, max_turns=20)
        outcome, _, _ = demonstrate(task, number, competence=1.0, settings=early)
        names = set(task.metadata["targets"])
        for entry in outcome.session.of("summary"):
            words = entry.data["text"].split()
            assert words[0] in ("done", "left")
            assert names <= set(words)
            seen.add(words[0])
    assert seen == {"done", "left"}


def test_episodes_are_short(source: ExerciseSource) -> None:
    """At most ten turns; the token count is measured with the run's tokenizer, here by words and signs."""
    for level in LEVELS:
        sizes = []
        for number, task_id in enumerate(source.ids("train", level=level)[:40]):
            outcome, _, _ = demonstrate(source.task(task_id), number, competence=1.0, settings=SETTINGS)
            assert outcome.counters["turns"] <= 10
            sizes.append(len(outcome.session.of("completion")))
        print(level, sum(sizes) / len(sizes), "turns")


def test_outcomes_of_a_missing_body_are_none() -> None:
    assert outcomes("def f(xs):\n    pass\n", "f", [[[1]]]) == ["None"]
