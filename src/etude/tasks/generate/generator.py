"""The generator protocol. From an installed project a generator lists candidates cheaply; a candidate's `build` makes
and proves one task.

`candidates` is pure in (project, seed): the same ids in the same order, so that a killed run resumes where it was.
`build` raises CandidateRejected with the reason why a candidate is no task, and InfraError for faults that are not its
own. The task that it returns has passed its proof (reference 1, no change 0, cheats 0) and has in its metadata:

    environment, overlay     where it runs (tasks.environment)
    generator                this generator's name, and `operators`: what was done to the project
    project                  "name-version"; splits hold out whole projects by it
    prompts                  {"terse": …, "ambiguous": …, "full": …}; the instruction is one of them, `style` says which
    changed                  {"lines": added + removed lines of the reference, "files": n}
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

from etude.sandbox.protocol import SandboxPool
from etude.tasks.content import texts_of
from etude.tasks.environment.environment import Environment
from etude.tasks.validation.suite_build import Candidate


@dataclass(frozen=True)
class Baseline:
    """Results of the project's tests on the untouched project.

    `passed`: ids that passed every time. `flaky`: ids that passed in some runs only. `by_file`, `seconds`: ids and
    seconds by test file, so that a change is tried on the affected files alone.
    """

    passed: frozenset[str]
    flaky: frozenset[str] = frozenset()
    by_file: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class InstalledProject:
    """A project that runs here.

    `files`: its tree as tasks hold it and as the snapshot has it in the workdir. `origin`: its source ("sdist click
    8.1.7", "debian node-semver 7.3.5-1", "git <commit>"). `licence`: an SPDX id, or empty.
    """

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
        """The files that are UTF-8 texts, which generators read and rewrite. The tree of a task is `files`."""
        return texts_of(self.files)


@dataclass(frozen=True)
class ProofContext:
    """Where candidates are proved: the sandboxes and the time limit of a test run."""

    pool: SandboxPool
    timeout_s: float = 120.0


class Generator(Protocol):
    """Lists candidates of one category.

    Every task carries `name` and `category`; `languages` are those that the generator can work on. A generator with a
    true attribute `large` makes large tasks only (`LaneScheduler` favours them). One with a method `installed_as` makes
    tasks in further environments and returns them by name (`EnvironmentProvider`).
    """

    name: str
    category: str
    languages: tuple[str, ...]

    def candidates(self, project: InstalledProject, bench: ProofContext, seed: int) -> Iterator[Candidate]: ...
