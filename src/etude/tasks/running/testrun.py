"""Runs a task's test command in a fresh sandbox and says which tests passed.

Three kinds of command, told apart by what they hold:

- none given: the pinned pytest over the task's test files, results by JUnit names. A test that must fail, under a name drawn
  for each run, catches code that turns failures into passes wholesale (as in `tasks.real`).
- with `{report}`: any runner that writes JUnit XML to that path.
- neither: the exit status is the result, under the one name `command`. Early exits fool it; the cheats of the soundness check
  find that out before such a task is taken.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from etude.sandbox.errors import UserError
from etude.sandbox.protocol import Disposable
from etude.tasks.running.pytest_tools import PYTEST_FLAGS
from etude.tasks.running.report import TestRun, canary_name, caught, read_report

REPORT = "/tmp/report.xml"
MAX_REPORT_BYTES = 16 << 20
SAID_CHARS = 400  # of a run's output, in the reason why a task is left out
WHOLE = "command"

# Makes a fresh sandbox that holds this whole tree.
Opener = Callable[[dict[str, bytes]], Awaitable[Disposable]]


@dataclass(frozen=True)
class Tests:
    """What to run. `files` are the chosen test files; `command` replaces the pinned pytest. `runner`: whose reports are read; empty: told
    by the command, as above."""

    files: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    runner: str = ""
    __test__ = False  # not a test class, whatever a collector thinks of its name


@dataclass(frozen=True)
class Ran:
    """A run and the end of what it printed. `honest`: the canary failed as it must, or there is none. `universal`: classes of the code
    under test whose objects are equal to anything."""

    run: TestRun
    said: str
    honest: bool = True
    universal: tuple[str, ...] = ()


async def run_tests(tests: Tests, files: Mapping[str, bytes], fresh: Opener, timeout_s: float) -> Ran:
    """One run. What the workspace does wrong is a run without passes; raises InfraError for what we do wrong."""
    canary = "" if tests.command else canary_name()
    graded, argv = dict(files), _argv(tests, canary)
    if canary:
        graded[_beside(tests.files, canary)] = f"def {canary}():\n    raise AssertionError\n".encode()
    try:
        sandbox = await fresh(graded)
    except UserError as error:
        return Ran(TestRun(frozenset(), frozenset(), -1), f"the files were refused: {error}")
    try:
        result = await sandbox.run(argv, timeout_s=timeout_s)
        said = (result.out + b"\n" + result.err).decode("utf-8", "replace").strip()[-SAID_CHARS:]
        if result.timed_out:
            return Ran(TestRun(frozenset(), frozenset(), result.rc, timeout_s, timed_out=True), said)
        if tests.command and not _reports(tests.command):
            names = frozenset((WHOLE,))
            passed = result.rc == 0
            return Ran(
                TestRun(
                    names if passed else frozenset(), frozenset() if passed else names, result.rc, result.duration_s
                ),
                said,
            )
        report = await sandbox.read(REPORT, max_bytes=MAX_REPORT_BYTES)
    except UserError as error:
        return Ran(TestRun(frozenset(), frozenset(), -1), f"no report: {error}")
    finally:
        await sandbox.kill()
    found = read_report(report, result.rc, result.duration_s)
    if not canary:
        return Ran(found, said)
    honest = caught(found, canary)
    return Ran(TestRun(found.passed, _without(found.failed, canary), found.rc, found.seconds), said, honest)


def _argv(tests: Tests, canary: str) -> list[str]:
    if tests.command:
        return [word.replace("{report}", REPORT) for word in tests.command]
    # The project's own addopts may name plugins that are not there; the wanted options are all here.
    flags = [*PYTEST_FLAGS, "-o", "addopts=", f"--junitxml={REPORT}"]
    return ["python3", "-m", "pytest", *flags, *tests.files, _beside(tests.files, canary)]


def visible_command(tests: Tests) -> tuple[str, ...]:
    """What the agent's test tool runs: the same tests, without a report."""
    if tests.command:
        return tuple(word.replace("{report}", REPORT) for word in tests.command)
    return ("python3", "-m", "pytest", *PYTEST_FLAGS, "-o", "addopts=")


def _reports(command: Sequence[str]) -> bool:
    return any("{report}" in word for word in command)


def _beside(files: Sequence[str], canary: str) -> str:
    """In the folder of a test file, so that it is collected like one."""
    folder = PurePosixPath(files[0]).parent if files else PurePosixPath()
    return str(folder / f"{canary}.py")


def _without(names: frozenset[str], canary: str) -> frozenset[str]:
    return frozenset(name for name in names if not name.endswith(f"::{canary}"))


Runner = Callable[[Mapping[str, bytes]], Awaitable[Ran]]
