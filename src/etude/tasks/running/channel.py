"""What a runner's channel prepares and what it makes of the answer; the parent inside (`inside/etude_supervise.py`) is the same for all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from etude.tasks.running.report import TestRun

INSIDE = "/opt/etude-running"  # where `running/inside` is bound
REPORT = "/tmp/etude-report"


@dataclass(frozen=True)
class Tests:
    """What to run. `files` are the chosen test files; `command` replaces the pinned pytest. `runner`: whose reports are read; empty: detected
    by the command: none is the pinned pytest, one with `{report}` writes JUnit XML there, any other is known by its exit status. `needed`:
    names of tests of which one that does not pass decides the matter: the run may end there, where its channel can tell."""

    files: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    runner: str = ""
    needed: frozenset[str] = frozenset()
    __test__ = False  # not a test class, whatever a collector thinks of its name

    @property
    def kind(self) -> str:
        """The runner's name, given or found."""
        reports = any("{report}" in word for word in self.command)
        return self.runner or ("pytest" if not self.command else "junit" if reports else "exit")


@dataclass(frozen=True)
class Prepared:
    """A run to be. `files` are written over the tree (canaries); `canaries`: what must be reported as failed, by a part of its name, and
    `passing` as passed; `watched`: the child gets the two pipes of the watch; `keep_output`: its output is the report; `needed`: the
    tests of which the first that does not pass ends the run."""

    argv: list[str]
    files: Mapping[str, bytes] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    report: str = ""
    canaries: tuple[str, ...] = ()
    passing: tuple[str, ...] = ()
    watched: bool = False
    keep_output: bool = False
    needed: frozenset[str] = frozenset()


@dataclass(frozen=True)
class ParentReport:
    """What the parent inside says of a run. `decided`: it was ended at the first needed test that did not pass."""

    rc: int
    seconds: float
    events: tuple[str, ...]
    forged: bool
    decided: bool
    tail: str
    output: bytes
    reports: tuple[bytes, ...]


@dataclass(frozen=True)
class VerifiedRun:
    """A run as its channel believes it. `objection`: why it can't be believed, empty if it can."""

    run: TestRun
    objection: str = ""
    universal: tuple[str, ...] = ()


class Channel(Protocol):
    def prepare(self, tests: Tests, files: Mapping[str, bytes], nonce: str, workdir: str) -> Prepared: ...
    def hear(self, answer: ParentReport, prepared: Prepared, workdir: str) -> VerifiedRun:
        """Raises NoReport."""
        ...


def fill_command(command: tuple[str, ...], words: list[str], report: str = REPORT) -> list[str]:
    """`{files}` as a word of its own becomes all words, within a word they are joined by commas; `{report}` a path."""
    argv: list[str] = []
    for word in command:
        if word == "{files}":
            argv += words
        elif "{files}" in word:
            argv += [word.replace("{files}", ",".join(words))] if words else []
        else:
            argv.append(word.replace("{report}", report))
    return argv


def check_canaries(run: TestRun, prepared: Prepared) -> tuple[TestRun, str]:
    """The run without its canaries, and what they betray."""
    marks = (*prepared.canaries, *prepared.passing)
    objection = ""
    if lying := [mark for mark in prepared.canaries if not _has(run.failed, mark) or _has(run.passed, mark)]:
        objection = f"{len(lying)} of {len(prepared.canaries)} tests that must fail were not reported as failed"
    elif any(not _has(run.passed, mark) for mark in prepared.passing):
        objection = "a test that must pass was not reported as passed"
    passed, failed = (
        frozenset(name for name in names if not any(mark in name for mark in marks))
        for names in (run.passed, run.failed)
    )
    kept: dict[str, Any] = {
        "where": {name: file for name, file in run.where.items() if name in passed | failed},
        "each": {name: took for name, took in run.each.items() if name in passed | failed},
        "xfailed": run.xfailed & failed,
    }
    return TestRun(passed, failed, run.rc, run.seconds, **kept), objection


def _has(names: frozenset[str], mark: str) -> bool:
    return any(mark in name for name in names)
