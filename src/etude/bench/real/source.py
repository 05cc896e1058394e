"""The tasks of the suite: a package as released, with one bug put in, and a request as a person would type it."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from etude.bench.real.wheels import Pin, unpacked
from etude.tasks.restore import MAX_FILE_BYTES
from etude.tasks.task import Split, Task

TEXT_SUFFIXES = (".py", ".pyi", ".txt", ".toml", ".cfg", ".md")
PYTEST_FLAGS = ("-q", "-p", "no:cacheprovider", "--no-header", "--tb=short")
TOOLS_INSIDE = "/opt/tools"  # where the pinned pytest is bound inside the sandbox


@cache
def _catalogue() -> dict[str, Any]:
    return tomllib.loads((files("etude.bench.real") / "bugs.toml").read_text())


def tool_binds(cache_folder: Path) -> tuple[tuple[str, str], ...]:
    """Read-only binds that put pytest into a sandbox: (host folder, folder inside), one per wheel."""
    tools = _catalogue()["tools"]
    pins = [Pin(name, entry["version"], entry["sha256"]) for name, entry in tools.items()]
    return tuple((str(unpacked(pin, cache_folder)), f"{TOOLS_INSIDE}/{pin.name}") for pin in pins)


def tool_path() -> str:
    """PYTHONPATH inside the sandbox that finds the bound tools."""
    return ":".join(f"{TOOLS_INSIDE}/{name}" for name in _catalogue()["tools"])


class RealPackages:
    """A TaskSource of injected bugs. Building a task needs its package: raises PackagesUnavailable without it."""

    name = "real-packages"

    def __init__(self, cache_folder: Path) -> None:
        self.cache_folder = cache_folder
        self._bugs = {bug["id"]: bug for bug in _catalogue()["bugs"]}

    def ids(self, split: Split, *, level: str | None = None) -> Sequence[str]:
        return [] if split == "train" or level not in (None, "real-bug") else list(self._bugs)

    def task(self, task_id: str) -> Task:
        bug = self._bugs[task_id]
        entry = _catalogue()["packages"][bug["package"]]
        folder = unpacked(Pin(bug["package"], entry["version"], entry["sha256"]), self.cache_folder)
        sources = {
            str(path.relative_to(folder)): path.read_text()
            for path in sorted((folder / bug["package"]).rglob("*"))
            if path.suffix in TEXT_SUFFIXES
        }
        fixed = sources[bug["file"]]
        if fixed.count(bug["old"]) != 1:
            raise ValueError(
                f"{task_id}: the text to break stands {fixed.count(bug['old'])} times in {bug['file']}, not once"
            )
        return Task(
            id=task_id,
            category="debugging",
            level="real-bug",
            instruction=f"{bug['instruction']}. Find the cause in package {bug['package']} and fix it.",
            files=sources | {bug["file"]: fixed.replace(bug["old"], bug["new"])},
            test_command=("python3", "-m", "pytest", *PYTEST_FLAGS, bug["tests"]),
            grader="pytest",
            hidden={"tests": bug["tests"]},
            solution={bug["file"]: fixed},
            split="heldout",
            metadata={"package": bug["package"], "version": entry["version"], "editable": _editable(sources)},
        )


def _editable(sources: dict[str, str]) -> list[str]:
    """Source files that are not tests, of a size that the graders take."""
    return [
        p for p, text in sources.items() if p.endswith(".py") and "/tests/" not in p and len(text) <= MAX_FILE_BYTES
    ]
