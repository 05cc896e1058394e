"""Generators of tests to write and reviews, over a small project in real sandboxes: no package index is asked."""

from __future__ import annotations

import pytest
from grid_project import SHAPES, TESTS, grid

from etude.tasks.audit import leaks
from etude.tasks.fail_to_pass import CandidateRejected
from etude.tasks.generate.generator import ProofContext
from etude.tasks.generate.generators.review import COMMENTS, Review
from etude.tasks.generate.generators.test_writing import TestWriting
from etude.tasks.registry import grade


@pytest.mark.nightly
async def test_tests_of_a_module_are_asked_for_and_graded_by_mutants(bench: ProofContext) -> None:
    candidate = next(iter(TestWriting().candidates(grid(), bench, 0)))
    task = await candidate.build()
    assert "tests/test_shapes.py" not in task.files and task.metadata["overlay"]["removed"] == ["tests/test_shapes.py"]
    assert not leaks(task)
    weak = task.solution["tests/test_shapes.py"].partition("    def test_area")[0]
    verdict = await grade(
        task,
        {path: text.encode() for path, text in task.files.items()} | {task.hidden["path"]: weak.encode()},
        bench.pool,
    )
    assert verdict.score == 0 and "caught" in verdict.reason and verdict.tests["right code"]


async def test_candidates_are_the_same_for_the_same_project_and_seed(bench: ProofContext) -> None:
    def ids(seed: int) -> list[str]:
        return [c.id for generator in (TestWriting(), Review()) for c in generator.candidates(grid(), bench, seed)]

    assert ids(0) == ids(0) and len(set(ids(0))) == len(ids(0)) > 1


@pytest.mark.nightly
async def test_a_project_whose_tests_notice_nothing_gives_no_task(bench: ProofContext) -> None:
    empty = "import unittest\n\nfrom grid import shapes\n\n\nclass Shapes(unittest.TestCase):\n    def test_it(self):\n        assert shapes\n"
    candidate = next(iter(TestWriting().candidates(grid({"tests/test_shapes.py": empty}), bench, 0)))
    with pytest.raises(CandidateRejected, match="notice 0 of"):
        await candidate.build()


async def test_a_review_has_clean_changes_and_is_graded_by_lines(bench: ProofContext) -> None:
    # Each function is a change of its own: the same text in four modules, with tests of each.
    project = grid(
        {f"grid/shapes{n}.py": SHAPES for n in "abc"}
        | {f"tests/test_shapes{n}.py": TESTS.replace("grid.shapes", f"grid.shapes{n}") for n in "abc"}
    )
    task = await next(iter(Review().candidates(project, bench, 0))).build()
    assert 1 <= task.metadata["clean"] <= 3 and not leaks(task)
    wrong = {one["path"] for one in task.hidden["defects"]}
    assert not wrong & {path.replace("tests/test_", "grid/") for path in task.files if path.startswith("tests/")}
    good = task.solution[COMMENTS]
    files = {path: text.encode() for path, text in task.files.items()}
    off = good.replace(f'"line": {task.hidden["defects"][0]["first"]},', '"line": 1,')
    assert (await grade(task, files | {COMMENTS: good.encode()}, bench.pool)).passed
    assert (
        not (await grade(task, files | {COMMENTS: off.encode()}, bench.pool)).passed or len(task.hidden["defects"]) > 2
    )
