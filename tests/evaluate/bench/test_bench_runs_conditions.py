"""The conditions of a folder: bound by the first attempt, joined by more policies, refused where they differ."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from etude.evaluate.bench.outcome import Outcome, OutcomeFile
from etude.evaluate.bench.runs.conditions import ConditionsDiffer, begin, read
from etude.evaluate.bench.runs.folder import RunFolder, append_line

SHARED: dict[str, Any] = {
    "suite": {"label": "s@1", "digest": "d"},
    "tasks": ["a"],
    "seed": 7,
    "report": {"resamples": 9},
}
FACTS: dict[str, Any] = {
    "harness": "h",
    "settings": {"max_turns": 40},
    "passes": 2,
    "price": {"input": 1},
    "priced": "2026-01-01",
}


def attempted(folder: RunFolder, key: str) -> None:
    OutcomeFile(folder.outcomes(key)).add(Outcome("a", 0, "c", "l", 1.0, 1, 1, 1, 0.1))


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder(tmp_path / "run")


def test_before_the_first_attempt_nothing_binds(folder: RunFolder) -> None:
    begin(folder, SHARED, {"p@low": FACTS})
    assert begin(folder, SHARED | {"seed": 8}, {"p@low": FACTS | {"harness": "other"}})["shared"]["seed"] == 8


@pytest.mark.parametrize(
    ("shared", "facts", "words"),
    [
        ({"suite": {"label": "s@2", "digest": "e"}}, {}, 'shared.suite.label: "s@1" then, "s@2" now'),
        ({"seed": 8}, {}, "shared.seed: 7 then, 8 now"),
        ({"tasks": ["a", "b"]}, {}, "shared.tasks"),
        ({}, {"settings": {"max_turns": 9}}, "p@low.settings.max_turns: 40 then, 9 now"),
        ({}, {"url": "http://x"}, 'p@low.url: null then, "http://x" now'),
    ],
)
def test_other_conditions_are_refused_by_name(folder: RunFolder, shared: Any, facts: Any, words: str) -> None:
    begin(folder, SHARED, {"p@low": FACTS})
    attempted(folder, "p@low")
    before = folder.conditions.read_bytes()
    with pytest.raises(ConditionsDiffer) as caught:
        begin(folder, SHARED | shared, {"p@low": FACTS | facts})
    assert words in str(caught.value) and "--out" in str(caught.value)
    assert folder.conditions.read_bytes() == before


def test_more_policies_and_more_passes_may_join_and_prices_stay_those_of_the_first_day(folder: RunFolder) -> None:
    begin(folder, SHARED, {"p@low": FACTS})
    attempted(folder, "p@low")
    later = FACTS | {"passes": 4, "price": {"input": 9}, "priced": "2026-06-01"}
    found = begin(folder, SHARED | {"report": {"resamples": 99}}, {"p@low": later, "q@low": FACTS})
    assert list(found["policies"]) == ["p@low", "q@low"] and found["policies"]["p@low"] == FACTS | {"passes": 4}
    assert begin(folder, SHARED, {"q@low": FACTS})["policies"]["p@low"]["passes"] == 4  # who is not asked now stays


def test_who_was_planned_and_never_answered_leaves_nothing_behind_unless_it_cost_money(folder: RunFolder) -> None:
    begin(folder, SHARED, {"slip@low": FACTS, "dear@low": FACTS})
    append_line(folder.usage, json.dumps({"policy": "dear@low", "session": "a#0.1", "input_tokens": 5}))
    assert list(begin(folder, SHARED, {"p@low": FACTS})["policies"]) == ["dear@low", "p@low"]


def test_a_judge_that_was_given_stays_when_a_later_command_names_none(folder: RunFolder) -> None:
    begin(folder, SHARED | {"report": {"resamples": 9, "rubrics": 2, "judge": "j"}}, {"p@low": FACTS})
    found = begin(folder, SHARED | {"report": {"resamples": 8, "rubrics": 2, "judge": None}}, {"p@low": FACTS})
    assert found["shared"]["report"] == {"resamples": 8, "rubrics": 2, "judge": "j"}


@pytest.mark.parametrize("name", ["recipe.toml", "policies"])
def test_another_runs_directory_is_left_alone(folder: RunFolder, name: str) -> None:
    folder.root.mkdir()
    (folder.root / name).touch()
    with pytest.raises(ConditionsDiffer, match=f"another run .it has {name}"):
        begin(folder, SHARED, {})
    assert not folder.conditions.exists()


def test_a_later_programs_conditions_are_refused(folder: RunFolder) -> None:
    folder.root.mkdir()
    folder.conditions.write_text('{"schema": 2, "shared": {}}')
    with pytest.raises(ConditionsDiffer, match="schema 2"):
        read(folder)
