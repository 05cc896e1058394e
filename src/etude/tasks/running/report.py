"""What a JUnit report says, and the added tests that must fail, whose pass betrays a runner that lies.

They are many, before and after the others, and each waits for a moment of its own: one alone would miss a runner that lies now and then.
"""

from __future__ import annotations

import random
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from xml.etree import ElementTree

from etude.tasks.running.inside import etude_supervise

ADDRESS = re.compile(etude_supervise.ADDRESS)
CANARIES = 16
LONGEST_S = 0.004  # of a canary's wait: some ways of a thread that changes the runner back and forth


@dataclass(frozen=True)
class TestRun:
    """Tests by their JUnit names: those that passed, and those that failed, erred or were skipped; pytest's exit status."""

    passed: frozenset[str]
    failed: frozenset[str]
    rc: int
    seconds: float = 0.0
    timed_out: bool = False
    where: Mapping[str, str] = field(default_factory=dict)  # the file of a test, where its runner says
    each: Mapping[str, float] = field(default_factory=dict)  # seconds of a test, likewise
    xfailed: frozenset[str] = frozenset()  # of `failed`, those that failed as their own marker says
    __test__ = False  # not a test class, whatever a collector thinks of its name


def canary_name() -> str:
    """The prefix of the names of tests that must fail, drawn again for each run."""
    return f"test_{secrets.token_hex(8)}"


def canaries(canary: str) -> tuple[str, str]:
    """Two test files that fail wholly, to be run before the others and after them."""
    made = [
        f"def {canary}_{n}():\n    sleep({random.uniform(0, LONGEST_S):.6f})\n    raise AssertionError\n"
        for n in range(CANARIES)
    ]
    files = (made[: CANARIES // 2], made[CANARIES // 2 :])
    first, last = ("from time import sleep\n\n\n" + "\n\n".join(tests) for tests in files)
    return first, last


def caught(found: TestRun, canary: str) -> bool:
    """Exit status 1 is pytest's word for: all ran, some failed. Every canary must be among them."""
    failed = {name.rpartition("::")[2] for name in found.failed}
    return found.rc == 1 and failed >= {f"{canary}_{n}" for n in range(CANARIES)}


def read_report(report: bytes, rc: int, seconds: float) -> TestRun:
    """A name passed if all its cases (subtests are cases too) are without a failure, an error or a skip."""
    try:
        root = ElementTree.fromstring(report)
    except (
        ElementTree.ParseError,
        ValueError,
        LookupError,
        RecursionError,
        MemoryError,
    ):  # an encoding that there is none of, say
        return TestRun(frozenset(), frozenset(), rc, seconds)
    passed: set[str] = set()
    other: set[str] = set()
    for case in root.iter("testcase"):
        name = ADDRESS.sub("0x", f"{case.get('classname')}::{case.get('name')}")
        (other if any(child.tag in ("failure", "error", "skipped") for child in case) else passed).add(name)
    return TestRun(frozenset(passed - other), frozenset(other), rc, seconds)
