"""Files and functions stay small, and the packages few: the limits that CONTRIBUTING states, measured on the tree. And names of tests' helpers."""

from __future__ import annotations

import importlib.util
import sys
from collections import Counter
from pathlib import Path

_spec = importlib.util.spec_from_file_location("repository_shape", Path(__file__).with_name("shape.py"))
assert _spec is not None and _spec.loader is not None
shape = importlib.util.module_from_spec(_spec)
sys.modules[_spec.name] = shape
_spec.loader.exec_module(shape)

LONGEST_FILE = 400  # lines


def test_no_function_is_longer_than_40_lines() -> None:
    assert shape.long_functions() == []


def test_no_file_is_longer_than_400_lines() -> None:
    assert {name: lines for name, path in shape.paths().items() if (lines := shape.lines_of(path)) > LONGEST_FILE} == {}


def test_there_are_at_most_eleven_packages() -> None:
    assert 8 <= len([path for path in shape.SOURCE.iterdir() if (path / "__init__.py").exists()]) <= 11


def test_small_files_with_one_importer_become_no_more() -> None:
    """A file has two importers, is a plug-in, or is above 80 lines. These 59 are there from earlier; the number only falls."""
    assert len(shape.files_without_reason()) <= 59


def test_no_two_helpers_of_tests_have_one_name() -> None:
    """Tests import helpers by their bare names: of two with one name the whole suite finds the first alone, and a folder's own run works."""
    tests = Path(__file__).parents[1]
    names = [path.stem for path in tests.rglob("*.py") if not path.name.startswith(("test_", "conftest", "__init__"))]
    assert [name for name, count in Counter(names).items() if count > 1] == []
