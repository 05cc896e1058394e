"""Harder tasks during a run, by simulation: mastered templates deepen, uniform groups become fewer, a kill changes nothing."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from etude.tasks.generate.exercises.source import ExerciseSource
from etude.tasks.generate.service.service import WINDOW, Service
from etude.tasks.generate.service.siblings import ExerciseSiblings, FolderSiblings, Sized

ROWS = [
    Sized(f"{project}-{number}", project, "bugs", "debugging", 2.0 * 1.5 ** (number % 6))
    for project in "pq"
    for number in range(240)
]
SIZES = {row.id: row.size for row in ROWS}
EASY = [row.id for row in ROWS if row.size < 4]


def solved(task: str, skill: float, rng: random.Random) -> float:
    """A policy solves what is smaller than its skill nearly always, and what is much larger nearly never."""
    return float(rng.random() < 1 / (1 + (SIZES[task] / skill) ** 4))


def a_run(folder: Path, *, serves: bool, kill_at: int = -1) -> list[tuple[str, bool]]:
    """Groups of eight at the easy tasks while the skill grows; what was served, and whether the group was uniform."""
    service = Service(FolderSiblings(ROWS), folder / "harder.jsonl", EASY)
    came = []
    for group, scheduled in enumerate(EASY):
        if group == kill_at:
            service = Service(FolderSiblings(ROWS), folder / "harder.jsonl", EASY)
        task = service.serve(group, scheduled) if serves else scheduled
        rng = random.Random(group)
        scores = [solved(task, 3 + group / 6, rng) for _ in range(8)]
        service.heard(group, scores)
        came.append((task, len(set(scores)) == 1))
    return came


def share(came: list[tuple[str, bool]]) -> float:
    last = came[len(came) // 2 :]
    return sum(uniform for _, uniform in last) / len(last)


def test_groups_are_less_often_uniform_with_the_service(tmp_path: Path) -> None:
    (tmp_path / "off").mkdir()
    assert share(a_run(tmp_path, serves=True)) < share(a_run(tmp_path / "off", serves=False)) - 0.3


def test_no_task_is_served_twice(tmp_path: Path) -> None:
    served = [task for task, _ in a_run(tmp_path, serves=True)]
    assert len(served) == len(set(served)) and set(served) != set(EASY)


@pytest.mark.parametrize("kill_at", [1, 17, 60])
def test_a_killed_run_serves_the_very_same_tasks(tmp_path: Path, kill_at: int) -> None:
    (tmp_path / "whole").mkdir()
    assert a_run(tmp_path, serves=True, kill_at=kill_at) == a_run(tmp_path / "whole", serves=True)


def test_a_line_that_a_kill_tore_was_followed_by_nobody(tmp_path: Path) -> None:
    a_run(tmp_path, serves=True)
    journal = tmp_path / "harder.jsonl"
    rows = journal.read_bytes().count(b"\n")
    with open(journal, "a") as log:
        log.write('{"kind": "served", "gro')
    Service(FolderSiblings(ROWS), journal, EASY)
    assert journal.read_bytes().count(b"\n") == rows and journal.read_bytes().endswith(b"\n")


def test_a_group_heard_twice_counts_once(tmp_path: Path) -> None:
    service = Service(FolderSiblings(ROWS), tmp_path / "harder.jsonl", EASY)
    service.serve(0, EASY[0])
    for _ in range(WINDOW):
        service.heard(0, [1.0] * 8)
    assert service.standings["p/bugs"].depth == 0


def test_what_is_never_solved_is_taken_back(tmp_path: Path) -> None:
    service = Service(FolderSiblings(ROWS), tmp_path / "harder.jsonl", EASY)
    for group, task in enumerate(EASY[:WINDOW]):
        service.serve(group, task)
        service.heard(group, [1.0] * 8)
    assert service.standings["p/bugs"].depth == 1
    for group, task in enumerate(EASY[WINDOW : 2 * WINDOW], WINDOW):
        assert service.serve(group, task) not in EASY
        service.heard(group, [0.0] * 8)
    assert service.standings["p/bugs"].depth == 0


def test_a_template_without_harder_siblings_keeps_its_tasks_and_is_told(tmp_path: Path) -> None:
    ids = [f"rename/train/{number:06d}" for number in range(20)]
    service = Service(ExerciseSiblings(), tmp_path / "harder.jsonl", ids)
    for group, task in enumerate(ids):
        assert service.serve(group, task) == task
        service.heard(group, [1.0] * 8)
    assert service.lacking == {"rename"}


def test_an_exercises_sibling_is_an_exercise_with_two_bugs(source: ExerciseSource) -> None:
    (harder,) = ExerciseSiblings().harder("one-bug/train/000123", 1)
    assert source.task(harder).level == "two-bugs"
