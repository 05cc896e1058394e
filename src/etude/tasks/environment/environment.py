"""An installed project as tasks refer to it: a snapshot by name, how its tests are run, and what its sandboxes need.

It travels in `metadata["environment"]` of every task of the project, so that a task read from disk needs nothing else but the
snapshot; where that is missing, `etude tasks prepare` makes it again by the recipe that the folder of tasks keeps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from etude.tasks.errors import TaskError

KEY = "environment"
DEPS = "/tmp/deps"  # where recipes install: kept by the snapshot, never exported with an agent's files

Runner = Literal[
    "pytest", "unittest", "node", "jest", "vitest", "mocha", "jasmine", "bun", "tap", "go", "cargo", "junit", "exit"
]


@dataclass(frozen=True)
class TestPlan:
    """How the project's own tests are run. `command`: argv; a word `{files}` is replaced by the chosen test files (all of `files` where
    none are chosen), `{report}` by the path of a report. Empty with runner pytest: the pinned pytest over `files`."""

    runner: Runner = "pytest"
    command: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    __test__ = False  # not a test class, whatever a collector thinks of its name


@dataclass(frozen=True)
class Environment:
    """`snapshot`: its name in the layer store, named after the recipe that made it; empty: the task's files alone, over the host's
    own system. `env`: variables of every command, e.g. PATH of a virtual environment below DEPS."""

    project: str  # "click"
    version: str  # "8.1.7"
    language: str = "python"
    snapshot: str = ""
    tests: TestPlan = TestPlan()
    env: Mapping[str, str] = field(default_factory=dict)
    start_script: str = ""
    memory_mb: int = 1024
    disk_mb: int = 256
    pids: int = 1024
    image: str = ""  # of the layer store, by name: its root file system, in place of the host's own
    workdir: str = ""  # where the task lies in it; empty: where every sandbox has it
    hosts: tuple[str, ...] = ()  # what its sandboxes reach, by name, through the policed door

    @property
    def name(self) -> str:
        return f"{self.project}-{self.version}"

    def to_record(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self) | {
            "env": dict(self.env),
            "hosts": list(self.hosts),
            "tests": {
                "runner": self.tests.runner,
                "command": list(self.tests.command),
                "files": list(self.tests.files),
            },
        }


def environment_of(metadata: Mapping[str, Any]) -> Environment | None:
    """A task's environment by its metadata; None for a task that has none. Raises TaskError."""
    table = metadata.get(KEY)
    if table is None:
        return None
    try:
        tests = table.get("tests", {})
        plan = TestPlan(tests.get("runner", "pytest"), tuple(tests.get("command", ())), tuple(tests.get("files", ())))
        return Environment(**{**table, "tests": plan, "hosts": tuple(table.get("hosts", ()))})
    except (TypeError, AttributeError) as error:
        raise TaskError(f"metadata.{KEY} is no environment: {error}; make the task again") from error
