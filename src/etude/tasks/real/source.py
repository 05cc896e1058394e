"""The tasks of the suite: a package as released, with one bug put in, and a request as a person would type it.

The agent sees code and tests without the tests that show the bug (promise 10): the request describes it, the tests that are
left pass. The grader gets the release's own test files.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from etude.tasks.real.catalogue import Bug, bugs
from etude.tasks.real.hiding import hidden
from etude.tasks.running.pin import unpack_release
from etude.tasks.running.pytest_tools import PYTEST_FLAGS
from etude.tasks.task import Split, Task

LEVEL = "real-bug"


class RealPackages:
    """A TaskSource of injected bugs. Building a task needs its package: raises PackagesUnavailable without it."""

    name = "real-packages"

    def __init__(self, cache_folder: Path) -> None:
        self.cache_folder = cache_folder

    def ids(self, split: Split, *, level: str | None = None) -> Sequence[str]:
        """One bug of each package, then the next of each: the first few ids are a fair small suite."""
        if split == "train" or level not in (None, LEVEL):
            return []
        turns: dict[str, list[str]] = {}
        for bug in bugs().values():
            turns.setdefault(bug.package.pin.name, []).append(bug.id)
        rounds = range(max(len(ids) for ids in turns.values()))
        return [ids[number] for number in rounds for ids in turns.values() if number < len(ids)]

    def task(self, task_id: str) -> Task:
        bug = bugs()[task_id]
        package = bug.package
        released = _texts(unpack_release(package.pin, self.cache_folder), (package.code, package.tests))
        broken = released | {edit.file: released[edit.file] for edit in bug.edits}
        for edit in bug.edits:
            broken[edit.file] = _break(bug, broken[edit.file], edit.old, edit.new)
        tests = {path: text for path, text in released.items() if _is_test(path, package.tests)}
        deselected = tuple(f"--deselect={name}" for name in package.deselect)
        return Task(
            id=task_id,
            category="debugging",
            level=LEVEL,
            instruction=f"{bug.instruction} Find the cause in {package.code} and fix it there.",
            files=broken | hidden(tests, bug.fails + bug.sometimes),
            test_command=("python3", "-m", "pytest", *PYTEST_FLAGS, *deselected, *bug.tests),
            grader="pytest",
            hidden={"tests": list(bug.tests), "files": tests, "fails": list(bug.fails), "flags": list(deselected)},
            solution={edit.file: released[edit.file] for edit in bug.edits},
            split="heldout",
            metadata={
                "package": package.pin.name,
                "version": package.pin.version,
                "tests": package.tests,
                "editable": [p for p in released if p.endswith(".py") and p not in tests],
            },
        )


def _break(bug: Bug, text: str, old: str, new: str) -> str:
    if text.count(old) != 1:
        raise ValueError(f"{bug.id}: the text to break occurs {text.count(old)} times in the file, not once: {old!r}")
    return text.replace(old, new)


def _is_test(path: str, folder: str) -> bool:
    return path.startswith(folder + "/")


def _texts(root: Path, folders: tuple[str, ...]) -> dict[str, str]:
    """The UTF-8 files of these folders. Others (test data in old encodings) are left out: tests that need them don't count."""
    found: dict[str, str] = {}
    for path in sorted({path for folder in folders for path in (root / folder).rglob("*") if path.is_file()}):
        try:
            found[str(path.relative_to(root))] = path.read_bytes().decode("utf-8")
        except UnicodeDecodeError:
            continue
    return found
