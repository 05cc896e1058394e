"""What a generator is: from an installed project it proposes candidates, cheap to list; a candidate's `build` makes and proves one task.

`candidates` is pure in (project, seed): the same ids in the same order, so that a making which was killed goes on where it was. `build`
raises LeftOut with the reason why a candidate is no task, and InfraError for what is no fault of its own; the task that it returns has
passed its own proof (reference 1, nothing 0, cheats 0) and carries in its metadata:

    environment, overlay     where it runs (tasks.environment)
    generator                this generator's name, and `operators`: what was done to the project
    project                  "name-version"; splits hold whole projects out by it
    prompts                  {"terse": …, "ambiguous": …, "full": …}; the instruction is one of them, `style` says which
    changed                  {"lines": added + removed of the reference, "files": n}
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

from etude.sandbox.protocol import SandboxPool
from etude.tasks.content import texts_of
from etude.tasks.environment.environment import Environment
from etude.tasks.validation.workshop import Candidate


@dataclass(frozen=True)
class Baseline:
    """The project's own tests on the untouched project. `passed`: ids that passed every time; `flaky`: that did not every time;
    `by_file`: ids by test file, `seconds` by test file: so that a change is tried on the files concerned alone."""

    passed: frozenset[str]
    flaky: frozenset[str] = frozenset()
    by_file: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Installed:
    """A project that runs here. `files`: its tree as tasks hold it, as the snapshot has it in the workdir; `origin`: where it came
    from ("sdist click 8.1.7", "debian node-semver 7.3.5-1", "git <commit>"), `licence` as SPDX or empty."""

    environment: Environment
    files: Mapping[str, str]
    baseline: Baseline
    origin: str = ""
    licence: str = ""

    @property
    def name(self) -> str:
        return self.environment.name

    @cached_property
    def texts(self) -> Mapping[str, str]:
        """The files that are UTF-8 texts: what generators read and rewrite. The tree of a task is `files`."""
        return texts_of(self.files)


@dataclass(frozen=True)
class Bench:
    """Where candidates are proved."""

    pool: SandboxPool
    timeout_s: float = 120.0


class Generator(Protocol):
    """`name` and `category` are in every task; `languages` are those it can work on. One with a true attribute `large` makes large tasks
    alone, of which a set wants many (`Turns`). One with a method `installed_as` makes tasks in other environments than the project's, which it
    gives by their names (`making.order.Installs`)."""

    name: str
    category: str
    languages: tuple[str, ...]

    def candidates(self, project: Installed, bench: Bench, seed: int) -> Iterator[Candidate]: ...
