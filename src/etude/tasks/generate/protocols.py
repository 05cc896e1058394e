"""Interfaces of a generation run: the request, who installs projects, who finalizes tasks, and where tasks go.

The run knows these protocols only, so installers, generators and stores stay independent of it and of each other.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from etude.tasks.generate.generator import Generator, InstalledProject
from etude.tasks.task import Task


class ProjectDiscarded(Exception):
    """Raised where a project can't be fetched or installed. The message gives the reason.

    `builder` names who tried; `spent` is its cost, as in `InstallResult.spent`.
    """

    def __init__(self, reason: str, builder: str = "rules") -> None:
        super().__init__(reason)
        self.builder = builder
        self.spent: Mapping[str, Any] = {}


class TaskSink(Protocol):
    """Receives finished tasks. Each is stored whole or not at all, even if the process dies while writing."""

    def ids(self) -> Collection[str]: ...
    def add(self, task: Task, project: InstalledProject, recipe: str, /) -> object: ...


@dataclass(frozen=True)
class InstallResult:
    """An installed project, its builder, and the cost where a model did the work.

    `spent`: turns, tokens and dollars of the install, also when it is read from the cache; dollars are None where the
    price is unknown. `recipe`: TOML that repeats the install.
    """

    installed: InstalledProject
    builder: str = "rules"
    dollars: float = 0.0
    spent: Mapping[str, Any] = field(default_factory=dict)
    recipe: str = ""
    notes: tuple[str, ...] = ()  # features of the project's container that a sandbox lacks


@runtime_checkable
class EnvironmentProvider(Protocol):
    """A generator that installs further environments in addition to the project's."""

    def installed_as(self, environment: str) -> InstallResult | None:
        """The install by the environment's name; None for one that this generator did not install."""
        ...


# Installs a project by name. Raises ProjectDiscarded, and InfraError for faults that are not the project's.
InstallFunction = Callable[[str], Awaitable[InstallResult]]
# Returns the task with its prompts. Raises CandidateRejected with the reason.
FinalizeFunction = Callable[[Task, InstalledProject], Awaitable[Task]]


@dataclass(frozen=True)
class GenerationRequest:
    """What a generation run makes.

    `count`: tasks in all. `per_category`: tasks of each category. `budget_s`: seconds after which no new candidate
    starts. `jobs`: workers. `timeout_s`: limit of one test run. `sources`: by import path, the digests of generators
    that are in other packages.
    """

    projects: Sequence[str]
    generators: Mapping[str, Generator]
    count: int | None = None
    per_category: int | None = None
    budget_s: float | None = None
    jobs: int = 2
    seed: int = 0
    timeout_s: float = 120.0
    sources: Mapping[str, str] = field(default_factory=dict)

    def identity(self) -> dict[str, object]:
        """What decides which candidates exist. A run resumes only with the same identity."""
        return {"seed": self.seed}


@dataclass
class GenerationProgress:
    """Progress of a run. `last` is a line for people."""

    taken: int = 0
    tried: int = 0
    installed: int = 0
    discarded: int = 0
    projects: int = 0
    count: int | None = None
    last: str = ""
    by_category: dict[str, int] = field(default_factory=dict)


ProgressCallback = Callable[[GenerationProgress], None]
