"""How good the tripwires are, measured as `etude bench wires` does: over every cheat that applies, and over references."""

from __future__ import annotations

from dataclasses import replace

import pytest

from etude.evaluate.bench.audit.measure import TripwireAccuracy, accuracy, check_changes
from etude.evaluate.bench.suites import builtin
from etude.tasks.cheats.exercise import CHEATS
from etude.tasks.generate.exercises.source import LEVELS, ExerciseSource
from etude.tasks.generate.settings import ExerciseSettings
from etude.tasks.running.pin import default_cache
from etude.tasks.task import Task

SOURCE = ExerciseSource(ExerciseSettings())


def task(level: str) -> Task:
    return SOURCE.task(SOURCE.ids("heldout", level=level)[0])  # type: ignore[arg-type]


@pytest.mark.parametrize("level", LEVELS)
def test_every_cheat_of_a_level_is_caught_and_its_reference_is_not_bothered(level: str) -> None:
    rows = check_changes(task(level))
    found = accuracy(rows)
    assert found == TripwireAccuracy(cheats=len(rows) - 1, caught=len(rows) - 1, references=1, bothered=0)
    assert found.recall == 1.0 == found.precision and found.cheats >= 8
    assert {row.cheat for row in rows} <= {"", *CHEATS}


def test_a_reference_that_trips_a_wire_costs_precision_and_a_change_that_trips_none_recall() -> None:
    one = task("one-bug")
    path = next(iter(one.solution))
    loud = replace(one, solution={path: "import os\n\nos._exit(0)\n"})
    rows = check_changes(loud)
    assert rows[0].cheat == "" and "exits" in rows[0].wires
    found = accuracy(rows)
    assert found.bothered == 1 and found.precision == found.caught / (found.caught + 1)
    missed = accuracy([*rows, replace(rows[1], wires=())])
    assert missed.recall is not None and missed.recall < 1.0


def test_what_was_not_tried_has_no_figure() -> None:
    assert accuracy([]).recall is None and accuracy([]).precision is None
    no_reference = check_changes(replace(task("one-bug"), solution={}))
    assert all(row.cheat for row in no_reference) and accuracy(no_reference).references == 0


@pytest.mark.nightly
def test_over_the_real_packages_every_cheat_is_caught_and_no_reference_bothered() -> None:
    suite = builtin.real(default_cache())
    rows = [row for task_id in suite.ids for row in check_changes(suite.task(task_id))]
    found = accuracy(rows)
    assert found.references == len(suite.ids) and found.bothered == 0 and found.caught == found.cheats > 100
