"""The task as an object; `harbor` is its codec on disk, `verdict` what a grader says of an attempt at it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, Sequence, get_args, runtime_checkable

from etude.core.trace.session import Session
from etude.sandbox.protocol import Machines

# Trained on; looked at while settings are chosen; measured for the figures that are reported.
Split = Literal["train", "validation", "heldout"]
SPLITS: tuple[Split, ...] = get_args(Split)


@dataclass(frozen=True)
class Task:
    """One practice task. `files` is the agent's workspace; `hidden` is seen by the grader alone (promise 10)."""

    id: str
    category: str  # debugging, features, refactors, tests, documentation, review, devops, migrations
    level: str  # finer than category, e.g. "one-bug"
    instruction: str
    files: dict[str, str]
    test_command: tuple[str, ...]  # what the agent's test tool runs, argv form
    grader: str  # name in the grader registry
    hidden: dict[str, Any] = field(default_factory=dict)  # JSON values: calls, expected outputs, mutants ...
    solution: dict[str, str] = field(default_factory=dict)  # path -> full reference content
    split: Split = "train"
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Verdict:
    """A grader's word. `score` in [0, 1]; `passed` is score == 1. Infra trouble raises InfraError instead."""

    score: float
    tests: dict[str, bool] = field(default_factory=dict)
    reason: str = ""
    seconds: float = 0.0

    @property
    def passed(self) -> bool:
        return self.score >= 1.0


class Grader(Protocol):
    """Judges the agent's final files in a fresh sandbox (promise 9)."""

    async def grade(self, task: Task, files: dict[str, bytes], pool: Machines) -> Verdict: ...


@runtime_checkable
class SessionGrader(Protocol):
    """Judges how the agent worked as well as what it left. An attempt asks it instead of `grade`, and never shares its verdicts."""

    async def grade_session(self, task: Task, files: dict[str, bytes], session: Session, pool: Machines) -> Verdict: ...


@runtime_checkable
class CheatedGrader(Protocol):
    """A grader that brings the cheats which `etude tasks check` tries on its tasks: by name the final files, each of which must score 0."""

    def cheats(self, task: Task) -> Mapping[str, dict[str, bytes]]: ...


class TaskSource(Protocol):
    """Where tasks come from: a folder of tasks or a generator. `task` is pure: same id, same task."""

    name: str

    def ids(self, split: Split, *, level: str | None = None) -> Sequence[str]: ...
    def task(self, task_id: str) -> Task: ...


@runtime_checkable
class MeasuredSource(Protocol):
    """A source whose training tasks were attempted before: by task the mean turns and thinking tokens, None if unknown."""

    def signs(self) -> Mapping[str, tuple[float | None, float | None]]: ...
