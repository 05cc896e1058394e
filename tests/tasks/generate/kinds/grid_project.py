"""A small project whose tests and examples notice what it does, as an installed one: no package index is asked."""

from __future__ import annotations

from etude.tasks.environment.environment import Environment, TestPlan
from etude.tasks.generate.generator import Baseline, InstalledProject

SHAPES = '''"""Shapes on a grid."""


def clamp(value, low=0, high=10):
    """The value, or the bound that it is beyond.

    >>> clamp(5)
    5
    >>> clamp(-1)
    0
    >>> clamp(11)
    10
    >>> clamp(1, high=-1)
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


def grid(extra: dict[str, str] | None = None) -> InstalledProject:
    files = {**FILES, **(extra or {})}
    tests = tuple(sorted(path for path in files if path.startswith("tests/")))
    plan = TestPlan("exit", ("python3", "-m", "unittest", "-q", "{files}"), tests)
    return InstalledProject(Environment("grid", "1.0", tests=plan), files, Baseline(frozenset()), "test")
