"""What every broken file of this room is made of: right texts, ways to break them, and scenarios that tell the one from the other."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from etude.tasks.generate.generator import InstalledProject
from etude.tasks.generate.generators.kinds.defects import Defect
from etude.tasks.generate.generators.kinds.modules import Tested
from etude.tasks.running.testrun import Tests, visible_command

STAMP = "_stamp.py"
STAMPED = 'STAMP = "{nonce}"\n'
BAD_SYNTAX = "def broken(:\n    pass\n"


@dataclass(frozen=True)
class Breakage:
    """`old` occurs once in the right text of `path`. `seen`: what a user of the file notices."""

    name: str
    path: str
    old: str
    new: str
    seen: str


@dataclass(frozen=True)
class DevopsRecipe:
    """A file (or a few) that runs something of the project. `promise`: what it must do, a sentence each; the agent gets all of them."""

    level: str
    what: str  # "the `Makefile`"
    files: Mapping[str, str]
    breakages: tuple[Breakage, ...]
    scenarios: tuple[dict[str, Any], ...]
    promise: tuple[str, ...]
    demand: str


@dataclass(frozen=True)
class DevopsProject:
    """The project as these files see it. `folder`: the package's, e.g. "src/pkg"; `defect`: one that the test file shows."""

    project: InstalledProject
    place: Tested
    defect: Defect

    @property
    def package(self) -> str:
        return self.place.name.partition(".")[0]

    @property
    def folder(self) -> str:
        parts = self.place.path.split("/")
        return "/".join(parts[: parts.index(self.package) + 1])

    @property
    def root(self) -> str:
        """What must be on Python's path: "." or "src"."""
        return self.folder.rpartition("/")[0] or "."

    @property
    def test(self) -> str:
        return self.place.tests[0]

    def test_command(self, test: str | None = None) -> str:
        """The shell command that runs the test file; `test`: another spelling of it, as in `$(TESTS)`."""
        plan = self.project.environment.tests
        command = visible_command(Tests((self.test,), plan.command, plan.runner))
        words = command if self.test in command else (*command, self.test)
        shell = shlex.join(words)
        return shell if test is None else shell.replace(self.test, test)

    def good(self, name: str, *steps: Mapping[str, Any], **options: Any) -> dict[str, Any]:
        return {"name": name, "steps": list(steps), "ok": True, **options}

    def bad(self, name: str, *steps: Mapping[str, Any], **options: Any) -> dict[str, Any]:
        return {"name": name, "steps": list(steps), "ok": False, **options}

    def spoilt(self) -> dict[str, Any]:
        """Code on which a test fails."""
        return {"edits": [self.defect.edit()]}

    def unparsable(self) -> dict[str, Any]:
        return {"files": {f"{self.folder}/_broken.py": BAD_SYNTAX}}

    def stamp_files(self) -> dict[str, Any]:
        """Code with a file whose content is drawn for each grading, to be found again in what comes out."""
        return {"files": {f"{self.folder}/{STAMP}": STAMPED}, "says": "{nonce}"}


Maker = Callable[[DevopsProject], DevopsRecipe]


def run(command: str) -> dict[str, str]:
    return {"run": command}
