"""Generators of tests to write, reviews, documentation and repairs, over a small project in real sandboxes: no package index is asked."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from etude.factory.generators.generator import Baseline, Bench, Installed
from etude.factory.generators.review import COMMENTS, Review
from etude.factory.generators.test_writing import TestWriting
from etude.sandbox.pool import open_pool
from etude.sandbox.settings import SandboxSettings
from etude.tasks.audit import leaks
from etude.tasks.environment.environment import Environment, TestPlan
from etude.tasks.registry import grade
from etude.tasks.validation.proof import LeftOut

SHAPES = '''"""Shapes on a grid."""


def clamp(value, low=0, high=10):
    """The value, or the bound that it is beyond.

    >>> clamp(5)
    5
    >>> clamp(-1)
    0
    >>> clamp(11)
    10
    >>> clamp(1, high=0)
    Traceback (most recent call last):
    ValueError: high is below low
    """
    if high < low:
        raise ValueError("high is below low")
    if value < low:
        return low
    if value > high:
        return high
    return value


def area(width, height):
    """The area of a rectangle.

    >>> area(2, 3)
    6
    >>> area(0, 3)
    0
    """
    if width <= 0 or height <= 0:
        return 0
    return width * height


def runs(values):
    """Lengths of the runs of equal values.

    >>> runs([1, 1, 2])
    [2, 1]
    >>> runs([])
    []
    """
    found = []
    last = None
    for number, value in enumerate(values):
        if number == 0 or value != last:
            found.append(0)
        found[-1] += 1
        last = value
    return found


def middle(values):
    """The median, the lower one of two.

    >>> middle([3, 1, 2])
    2
    >>> middle([4, 1, 2, 3])
    2
    """
    kept = sorted(values)
    if not kept:
        return None
    return kept[(len(kept) - 1) // 2]
'''
TESTS = """import unittest

from grid.shapes import area, clamp, middle, runs


class Shapes(unittest.TestCase):
    def test_clamp(self):
        self.assertEqual([clamp(v) for v in (-1, 0, 1, 9, 10, 11)], [0, 0, 1, 9, 10, 10])
        self.assertEqual(clamp(3, 3, 3), 3)
        with self.assertRaises(ValueError):
            clamp(1, high=-1)

    def test_area(self):
        self.assertEqual([area(2, 3), area(0, 3), area(3, 0), area(1, 5), area(5, 1)], [6, 0, 0, 5, 5])

    def test_runs(self):
        self.assertEqual(runs([1, 1, 2]), [2, 1])
        self.assertEqual(runs([]), [])
        self.assertEqual(runs([None, None]), [2])

    def test_middle(self):
        self.assertEqual([middle([3, 1, 2]), middle([4, 1, 2, 3]), middle([7]), middle([])], [2, 2, 7, None])


if __name__ == "__main__":
    unittest.main()
"""
FILES = {"grid/__init__.py": "", "grid/shapes.py": SHAPES, "tests/test_shapes.py": TESTS, "README.md": "# Grid\n"}


def grid(extra: dict[str, str] | None = None) -> Installed:
    files = {**FILES, **(extra or {})}
    tests = tuple(sorted(path for path in files if path.startswith("tests/")))
    plan = TestPlan("exit", ("python3", "-m", "unittest", "-q", "{files}"), tests)
    return Installed(Environment("grid", "1.0", tests=plan), files, Baseline(frozenset()), "test")


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    pool = await open_pool(SandboxSettings())
    yield Bench(pool, 20.0)
    await pool.close()


async def test_tests_of_a_module_are_asked_for_and_graded_by_mutants(bench: Bench) -> None:
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


async def test_candidates_are_the_same_for_the_same_project_and_seed(bench: Bench) -> None:
    def ids(seed: int) -> list[str]:
        return [c.id for generator in (TestWriting(), Review()) for c in generator.candidates(grid(), bench, seed)]

    assert ids(0) == ids(0) and len(set(ids(0))) == len(ids(0)) > 1


async def test_a_project_whose_tests_notice_nothing_gives_no_task(bench: Bench) -> None:
    empty = "import unittest\n\nfrom grid import shapes\n\n\nclass Shapes(unittest.TestCase):\n    def test_it(self):\n        assert shapes\n"
    candidate = next(iter(TestWriting().candidates(grid({"tests/test_shapes.py": empty}), bench, 0)))
    with pytest.raises(LeftOut, match="notice 0 of"):
        await candidate.build()


async def test_a_review_has_clean_changes_and_is_graded_by_lines(bench: Bench) -> None:
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
