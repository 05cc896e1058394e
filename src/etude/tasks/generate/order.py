"""What is asked of a making, and whom it asks: who installs, who generates, where tasks go. Protocols, so that each is its own room's."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from etude.tasks.generate.generator import Generator, Installed
from etude.tasks.task import Task


class Discarded(Exception):
    """A project that can't be fetched or installed; says why. `builder` tried, and spent that much (as `Built.spent`)."""

    def __init__(self, reason: str, builder: str = "rules") -> None:
        super().__init__(reason)
        self.builder = builder
        self.spent: Mapping[str, Any] = {}


class Shelf(Protocol):
    """Where tasks go: whole or not at all, also when the process dies in the middle."""

    def ids(self) -> Collection[str]: ...
    def add(self, task: Task, project: Installed, recipe: str, /) -> object: ...


@dataclass(frozen=True)
class Built:
    """An installed project, who installed it, and what it cost where a model did; `spent`: turns, tokens and dollars (None where nobody
    knows the price), once for all, also where it is taken from the cache; `recipe`: TOML that makes it again."""

    installed: Installed
    builder: str = "rules"
    dollars: float = 0.0
    spent: Mapping[str, Any] = field(default_factory=dict)
    recipe: str = ""
    notes: tuple[str, ...] = ()  # what its own container has and a sandbox does not


@runtime_checkable
class Installs(Protocol):
    """A generator that installs environments besides the project's."""

    def installed_as(self, environment: str) -> Built | None:
        """By the environment's name; None for one that it did not install."""
        ...


# By a project's name. Raises Discarded, and InfraError for what is no fault of the project.
Install = Callable[[str], Awaitable[Built]]
# The task with its prompts. Raises LeftOut with the reason why it is none.
Finish = Callable[[Task, Installed], Awaitable[Task]]


@dataclass(frozen=True)
class Order:
    """`count` tasks in all, `per_category` of each; `budget_s`: no candidate is begun after that. `languages` of projects that are known
    before they are installed spare what no generator could work on."""

    projects: Sequence[str]
    generators: Mapping[str, Generator]
    count: int | None = None
    per_category: int | None = None
    budget_s: float | None = None
    jobs: int = 2
    seed: int = 0
    timeout_s: float = 120.0

    def asked(self) -> dict[str, object]:
        """What decides which candidates there are: a making goes on only with the same."""
        return {"seed": self.seed}


@dataclass
class Told:
    """How a making goes on, for whoever watches. `last` is a line for people."""

    taken: int = 0
    tried: int = 0
    installed: int = 0
    discarded: int = 0
    projects: int = 0
    count: int | None = None
    last: str = ""
    by_category: dict[str, int] = field(default_factory=dict)


Progress = Callable[[Told], None]
