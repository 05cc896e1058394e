"""Harder tasks during a run, by simulation: mastered templates deepen, uniform groups become fewer, a kill changes
nothing."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from etude.tasks.generate.exercises.source import ExerciseSource
from etude.tasks.generate.harder_tasks.selection import WINDOW, HarderTaskSelector
from etude.tasks.generate.harder_tasks.variants import ExerciseVariants, FolderVariants, SizedTask

ROWS = [
    SizedTask(f"{project}-{number}", project, "bugs", "debugging", 2.0 * 1.5 ** (number % 6))
    for project in "pq"
    for number in range(240)
]
SIZES = {row.id: row.size for row in ROWS}
EASY = [row.id for row in ROWS if row.size < 4]


def solved(task: str, skill: float, rng: random.Random) -> float:
    """Nearly always solves tasks smaller than the skill, and nearly never much larger ones."""
    return float(rng.random() < 1 / (1 + (SIZES[task] / skill) ** 4))


def a_run(folder: Path, *, serves: bool, kill_at: int = -1) -> list[tuple[str, bool]]:
    """Groups of eight at the easy tasks while the skill grows; what was served, and whether the group was uniform."""
    service = HarderTaskSelector(FolderVariants(ROWS), folder / "harder.jsonl", EASY)
    came = []
    for group, scheduled in enumerate(EASY):
        if group == kill_at:
            service = HarderTaskSelector(FolderVariants(ROWS), folder / "harder.jsonl", EASY)
        task = service.serve(group, scheduled) if serves else scheduled
        rng = random.Random(group)
        scores = [solved(task, 3 + group / 6, rng) for _ in range(8)]
        service.record_scores(group, scores)
        came.append((task, len(set(scores)) == 1))
    return came


def share(came: list[tuple[str, bool]]) -> float:
    last = came[len(came) // 2 :]
    return sum(uniform for _, uniform in last) / len(last)


def test_groups_are_less_often_uniform_with_harder_tasks(tmp_path: Path) -> None:
    (tmp_path / "off").mkdir()
    assert share(a_run(tmp_path, serves=True)) < share(a_run(tmp_path / "off", serves=False)) - 0.3


def test_no_task_is_served_twice(tmp_path: Path) -> None:
    served = [task for task, _ in a_run(tmp_path, serves=True)]
    assert len(served) == len(set(served)) and set(served) != set(EASY)


@pytest.mark.parametrize("kill_at", [1, 17, 60])
def test_a_resumed_run_serves_the_same_tasks(tmp_path: Path, kill_at: int) -> None:
    (tmp_path / "whole").mkdir()
    assert a_run(tmp_path, serves=True, kill_at=kill_at) == a_run(tmp_path / "whole", serves=True)


def test_a_truncated_line_has_no_effect(tmp_path: Path) -> None:
    a_run(tmp_path, serves=True)
    journal = tmp_path / "harder.jsonl"
    rows = journal.read_bytes().count(b"\n")
    with open(journal, "a") as log:
        log.write('{"kind": "served", "gro')
    HarderTaskSelector(FolderVariants(ROWS), journal, EASY)
    assert journal.read_bytes().count(b"\n") == rows and journal.read_bytes().endswith(b"\n")


def test_a_group_recorded_twice_counts_once(tmp_path: Path) -> None:
    service = HarderTaskSelector(FolderVariants(ROWS), tmp_path / "harder.jsonl", EASY)
    service.serve(0, EASY[0])
    for _ in range(WINDOW):
        service.record_scores(0, [1.0] * 8)
    assert service.progress["p/bugs"].depth == 0


def test_a_template_that_is_never_solved_gets_shallower(tmp_path: Path) -> None:
    service = HarderTaskSelector(FolderVariants(ROWS), tmp_path / "harder.jsonl", EASY)
    for group, task in enumerate(EASY[:WINDOW]):
        service.serve(group, task)
        service.record_scores(group, [1.0] * 8)
    assert service.progress["p/bugs"].depth == 1
    for group, task in enumerate(EASY[WINDOW : 2 * WINDOW], WINDOW):
        assert service.serve(group, task) not in EASY
        service.record_scores(group, [0.0] * 8)
    assert service.progress["p/bugs"].depth == 0


def test_a_template_without_harder_variants_keeps_its_tasks_and_is_reported(tmp_path: Path) -> None:
    ids = [f"rename/train/{number:06d}" for number in range(20)]
    service = HarderTaskSelector(ExerciseVariants(), tmp_path / "harder.jsonl", ids)
    for group, task in enumerate(ids):
        assert service.serve(group, task) == task
        service.record_scores(group, [1.0] * 8)
    assert service.exhausted == {"rename"}


def test_the_variant_of_an_exercise_has_two_bugs(source: ExerciseSource) -> None:
    (harder,) = ExerciseVariants().harder("one-bug/train/000123", 1)
    assert source.task(harder).level == "two-bugs"
