"""One test as a runner reports it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from etude.tasks.running.report import ADDRESS, TestRun

Outcome = Literal["passed", "failed", "skipped", "xfailed"]  # xfailed: failed, as its marker says


class NoReport(Exception):
    """A report is missing or doesn't parse; says which."""


@dataclass(frozen=True)
class Case:
    """`file` relative to the workdir, empty where the runner doesn't say."""

    name: str
    outcome: Outcome
    file: str = ""
    seconds: float = 0.0


def test_run(cases: Iterable[Case], rc: int, seconds: float) -> TestRun:
    """A name passed if all its cases did; addresses in names of parametrised tests are left out, they differ from run to run."""
    passed: set[str] = set()
    other: set[str] = set()
    expected: set[str] = set()
    where: dict[str, str] = {}
    each: dict[str, float] = {}
    for case in cases:
        name = ADDRESS.sub("0x", case.name)
        (passed if case.outcome == "passed" else expected if case.outcome == "xfailed" else other).add(name)
        if case.file:
            where[name] = case.file
        each[name] = each.get(name, 0.0) + case.seconds
    failed = frozenset(other | expected)
    good = frozenset(passed) - failed
    return TestRun(good, failed, rc, seconds, where=where, each=each, xfailed=frozenset(expected - other - passed))
