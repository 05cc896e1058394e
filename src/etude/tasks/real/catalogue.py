"""What the suite consists of: pinned packages, the bugs put into each (`bugs/<package>.toml`), and the pinned pytest."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from etude.core import bounded_toml
from etude.tasks.running.pin import Pin


@dataclass(frozen=True)
class Package:
    """One release. `code` and `tests` are folders of it; `deselect` are its tests that are slow or hang on the clock."""

    pin: Pin
    code: str
    tests: str
    deselect: tuple[str, ...] = ()


@dataclass(frozen=True)
class CatalogueEdit:
    """`old` occurs exactly once in `file` of the release; the bug has `new` there."""

    file: str
    old: str
    new: str


@dataclass(frozen=True)
class Bug:
    """One bug and what a person would write about it. `fails` are the tests that show it, as JUnit names them; `sometimes`
    those that draw lots and may show it."""

    id: str
    package: Package
    edits: tuple[CatalogueEdit, ...]
    tests: tuple[str, ...]
    fails: tuple[str, ...]
    sometimes: tuple[str, ...]
    instruction: str


@cache
def bugs() -> dict[str, Bug]:
    """All bugs by id, in the order of the files."""
    found: dict[str, Bug] = {}
    for table in _tables():
        package = _package(table["package"])
        for row in table["bugs"]:
            edits = tuple(CatalogueEdit(**edit) for edit in row["edits"])
            tests, fails, sometimes = (tuple(row.get(key, ())) for key in ("tests", "fails", "sometimes"))
            bug = Bug(row["id"], package, edits, tests, fails, sometimes, " ".join(row["text"].split()))
            if bug.id in found:
                raise ValueError(f"two bugs are called {bug.id}: give one another id")
            found[bug.id] = bug
    return found


def _tables() -> Iterator[dict[str, Any]]:
    folder = files("etude.tasks.real") / "bugs"
    for path in sorted(folder.iterdir(), key=lambda path: path.name):
        if path.name.endswith(".toml"):
            yield bounded_toml.loads(path.read_text(encoding="utf-8"))


def _package(row: dict[str, Any]) -> Package:
    pin = Pin(row["name"], row["version"], row["sha256"], row["kind"])
    return Package(pin, row["code"], row["tests"], tuple(row.get("deselect", ())))
