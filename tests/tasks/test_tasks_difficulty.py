"""Difficulty is measured: more to change and more to read is harder, rollouts outweigh both, and what is not known is not made up."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.tasks.difficulty.marking import (
    PRIOR_ATTEMPTS,
    DifficultySample,
    mark,
    measure_difficulty,
    prior,
    prior_correlation,
    score,
)
from etude.tasks.difficulty.solver import effort, rank_files
from etude.tasks.store.folder import TaskFolder
from etude.tasks.task import Task

SIZE = st.integers(0, 100_000)
SHARE = st.floats(0, 1)
FILES = {
    "shop/prices.py": "def total(prices):\n    return sum(prices[:-1])\n",
    "shop/names.py": "def initials(names):\n    return [n[0] for n in names]\n",
    "shop/stock.py": "class Stock:\n    pass\n" * 40,
}


def a_task(request: str, lines: int = 2) -> Task:
    mended = FILES["shop/prices.py"].replace("[:-1]", "")
    facts = {"changed": {"lines": lines, "files": 1}, "generator": "bugs"}
    return Task(
        "t", "debugging", "bugs", request, FILES, (), "commands", solution={"shop/prices.py": mended}, metadata=facts
    )


@given(SIZE, SIZE, SIZE, SIZE)
def test_the_prior_is_a_share_and_grows_with_each_measure(lines: int, files: int, read: int, more: int) -> None:
    found = prior(lines, files, read)
    assert 0 <= found <= 1
    assert (
        min(prior(lines + more, files, read), prior(lines, files + more, read), prior(lines, files, read + more))
        >= found
    )


@given(SHARE, st.lists(SHARE, max_size=40))
def test_rollouts_move_the_score_towards_the_share_that_failed(before: float, scores: list[float]) -> None:
    tried = [DifficultySample("t", one, 3) for one in scores]
    failed = 1 - sum(scores) / len(scores) if scores else before
    found = score(before, tried)
    assert min(before, failed) - 1e-9 <= found <= max(before, failed) + 1e-9
    assert abs(found - failed) <= PRIOR_ATTEMPTS / (PRIOR_ATTEMPTS + len(scores)) + 1e-9


def test_a_request_that_names_the_place_costs_less_reading_than_one_that_tells_a_symptom() -> None:
    named, vague = effort(a_task("`total` leaves the last of the prices out")), effort(a_task("Stock names are off"))
    assert rank_files("`total` leaves the last of the prices out", FILES)[0] == "shop/prices.py"
    assert (named.files, named.edits) == (1, 1) and vague.files == 3 and vague.lines > 80
    assert (
        measure_difficulty(a_task("Stock names are off"))["score"]
        > measure_difficulty(a_task("total of prices"))["score"]
    )


def test_what_a_reference_adds_needs_no_search() -> None:
    task = replace(a_task("write tests"), solution={"tests/test_new.py": "def test(): pass\n"})
    assert effort(task).files == 0 and effort(task).edits == 1


def test_a_folder_is_marked_once_and_again_only_where_rollouts_change_something(tmp_path: Path) -> None:
    folder = TaskFolder(tmp_path, make=True)
    for number in range(3):
        folder.add(replace(a_task("total of prices", 2 * 10**number), id=f"t-{number}"))
    first = mark(folder, [])
    assert first["written"] == 3 and first["foretold"] is None and mark(folder, [])["written"] == 0
    tried = [DifficultySample(f"t-{number}", float(number == 0), 4 + number, 100.0 * number) for number in range(3)]
    facts = mark(TaskFolder(tmp_path, make=True), [*tried, DifficultySample("elsewhere", 1, 1)])
    assert (facts["written"], facts["rollouts"], facts["rollouts_of_other_tasks"]) == (3, 3, 1)
    rows = TaskFolder(tmp_path).rows
    assert [rows[f"t-{n}"].turns for n in range(3)] == [4, 5, 6] and rows["t-2"].thinking == 200
    assert rows["t-0"].difficulty < rows["t-1"].difficulty < rows["t-2"].difficulty  # type: ignore[operator]
    assert not TaskFolder(tmp_path).verify()


def test_how_well_the_prior_foretells_is_a_rank_correlation_or_nothing() -> None:
    rows = [{"prior": p, "rollouts": {"mean": m}} for p, m in ((0.1, 0.9), (0.4, 0.5), (0.7, 0.1))]
    assert (
        prior_correlation(rows) == 1.0
        and prior_correlation([{**row, "prior": 1 - row["prior"]} for row in rows]) == -1.0
    )
    assert prior_correlation(rows[:2]) is None and prior_correlation([{"prior": 0.5}, *rows[:2]]) is None
    assert prior_correlation([{**row, "rollouts": {"mean": 0.0}} for row in rows]) is None
    assert prior_correlation([*rows, {"prior": 0.1, "rollouts": {"mean": 0.9}}]) == pytest.approx(1.0)
