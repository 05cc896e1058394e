"""The table of checks in docs/sandbox.md names tests that exist and say their number."""

from __future__ import annotations

import ast
import re
from pathlib import Path

_ROOT = Path(__file__).parents[2]
_ROW = re.compile(r"^\| (\d+) \| `(tests/[^`]+)`(?: `([^`]+)`)? \|$", re.MULTILINE)
_TASKS = range(51, 56)  # graders and importers


def _numbers(text: str) -> set[int]:
    """`Test 3`, `Tests 38 to 41`, `Tests 1 and 9`."""
    found: set[int] = set()
    for said in re.findall(r"\bTests? ((?:\d+(?:, | to | and )?)+)", text):
        found |= {int(number) for number in re.findall(r"\d+", said)}
        for first, last in re.findall(r"(\d+) to (\d+)", said):
            found |= set(range(int(first), int(last) + 1))
    return found


def test_every_check_has_a_test_that_says_its_number() -> None:
    rows = {int(number): (path, name) for number, path, name in _ROW.findall((_ROOT / "docs/sandbox.md").read_text())}
    for number, (path, name) in rows.items():
        module = ast.parse((_ROOT / path).read_text())
        tests = {one.name: one for one in module.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)}
        assert not name or name in tests, f"check {number}: {path} has no {name}"
        said = ast.get_docstring(tests[name] if name else module) or ""
        assert number in _numbers(said), f"check {number}: {path} {name} does not say its number"
    assert set(range(1, 57)) - rows.keys() <= {*_TASKS}
