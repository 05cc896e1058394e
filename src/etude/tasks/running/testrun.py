"""Runs a task's tests in a fresh sandbox and says which passed, and whether that can be believed.

Every runner has a channel (`channels/`): how it is started, what it reports, and the added tests that must fail. A parent
inside supervises it (`inside/etude_supervise.py`): the tested code holds no handle by which the answer travels. A command of a suite that
names no runner (`Tests.runner` empty) may live in an image without Python and is run as it is, by its JUnit report or its exit status.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace

from etude.sandbox.errors import UserError
from etude.sandbox.protocol import Disposable
from etude.sandbox.spec import WORKDIR
from etude.tasks.bounded import LimitReached, run_bounded_if_large
from etude.tasks.errors import TaskError
from etude.tasks.running.channel import REPORT, Channel, ParentReport, Prepared, Tests, VerifiedRun, fill_command
from etude.tasks.running.channels.appended import CHANNELS
from etude.tasks.running.channels.exit_status import WHOLE, ExitChannel
from etude.tasks.running.channels.pytest_channel import PytestChannel
from etude.tasks.running.parsers.case import NoReport
from etude.tasks.running.pytest_tools import PYTEST_FLAGS
from etude.tasks.running.report import TestRun, read_report
from etude.tasks.running.supervised import Silent, supervise

# Every channel by the name of its runner (`tasks.environment.environment.Runner`).


EXIT = ExitChannel()
_ALL: dict[str, Channel] = {"pytest": PytestChannel(), "exit": EXIT, **CHANNELS}


def channel(kind: str) -> Channel:
    """Raises TaskError."""
    if kind not in _ALL:
        raise TaskError(f"no runner {kind!r}; there are {', '.join(_ALL)}")
    return _ALL[kind]


__all__ = ["Opener", "RunReport", "Runner", "Tests", "run_tests", "visible_command"]

MAX_REPORT_BYTES = 16 << 20
OUTPUT_CHARS = 400  # of a run's output, in the reason why a task is left out
NONE: frozenset[str] = frozenset()

# Makes a fresh sandbox that holds this whole tree.
Opener = Callable[[dict[str, bytes]], Awaitable[Disposable]]


@dataclass(frozen=True)
class RunReport:
    """A run and the end of what it printed. `honest`: nothing speaks against its results; `objection` says what does. `universal`: classes
    of the code under test whose objects are equal to anything. `silent`: the parent inside was killed or never started."""

    run: TestRun
    output: str
    honest: bool = True
    universal: tuple[str, ...] = ()
    objection: str = ""
    silent: bool = False
    signal: int | None = None
    oom: bool = False


async def run_tests(tests: Tests, files: Mapping[str, bytes], fresh: Opener, timeout_s: float) -> RunReport:
    """One run. What the workspace does wrong is a run without passes; raises InfraError for what we do wrong, TaskError for a test plan
    that no channel can run."""
    if tests.command and not tests.runner:
        return await _direct(tests, files, fresh, timeout_s)
    nonce = secrets.token_hex(8)
    ran = await _once(tests, files, fresh, timeout_s, nonce)
    if tests.kind == "exit" and ran.run.passed and (planted := EXIT.control(tests, files, nonce)):
        control = await _once(tests, {**files, **planted}, fresh, timeout_s, nonce)
        if control.run.passed:
            return replace(ran, honest=False, objection="the command succeeds though a test must fail")
    return ran


async def _once(tests: Tests, files: Mapping[str, bytes], fresh: Opener, timeout_s: float, nonce: str) -> RunReport:
    spoken = channel(tests.kind)
    prepared = spoken.prepare(tests, files, nonce, WORKDIR)
    try:
        sandbox = await fresh({**files, **prepared.files})
    except UserError as error:
        return _refused(f"the files were refused: {error}")
    try:
        answer = await supervise(sandbox, prepared, timeout_s)
    except UserError as error:
        return _refused(f"no report: {error}")
    finally:
        await sandbox.kill()
    if isinstance(answer, Silent):
        result = answer.result
        printed = (result.out + b"\n" + result.err).decode("utf-8", "replace").strip()[-OUTPUT_CHARS:]
        if result.timed_out:
            return RunReport(
                TestRun(NONE, NONE, result.rc, timeout_s, timed_out=True), printed, False, objection="it hangs"
            )
        why = "what runs the tests was killed, or could not start"
        return RunReport(TestRun(NONE, NONE, result.rc), printed, False, (), why, True, result.signal, result.oom)
    data = b"\n".join((answer.output, *answer.reports))
    try:
        verified = await run_bounded_if_large(data, verified_run, tests.kind, answer, prepared)
    except LimitReached as error:
        verified = VerifiedRun(TestRun(NONE, NONE, answer.rc), str(error))
    return RunReport(
        verified.run,
        answer.tail.strip()[-OUTPUT_CHARS:],
        not verified.objection,
        verified.universal,
        verified.objection,
    )


def verified_run(kind: str, answer: ParentReport, prepared: Prepared) -> VerifiedRun:
    """What a channel makes of an answer. The report is the tested code's: whatever it holds, it is a report or it is none."""
    try:
        return channel(kind).hear(answer, prepared, WORKDIR)
    except NoReport as error:
        return VerifiedRun(TestRun(NONE, NONE, answer.rc), str(error))
    except Exception as error:  # noqa: BLE001 - a parser may meet anything there
        return VerifiedRun(
            TestRun(NONE, NONE, answer.rc), f"the report can't be read ({type(error).__name__}: {str(error)[:200]})"
        )


async def _direct(tests: Tests, files: Mapping[str, bytes], fresh: Opener, timeout_s: float) -> RunReport:
    """Without a parent: by the report's own words, or the status."""
    prepared = Prepared(fill_command(tests.command, list(tests.files), REPORT))
    try:
        sandbox = await fresh(dict(files))
    except UserError as error:
        return _refused(f"the files were refused: {error}")
    try:
        result = await sandbox.run(prepared.argv, timeout_s=timeout_s)
        printed = (result.out + b"\n" + result.err).decode("utf-8", "replace").strip()[-OUTPUT_CHARS:]
        if result.timed_out:
            return RunReport(TestRun(NONE, NONE, result.rc, timeout_s, timed_out=True), printed, objection="it hangs")
        if tests.kind == "exit":
            names, good = frozenset((WHOLE,)), result.rc == 0
            return RunReport(
                TestRun(names if good else NONE, NONE if good else names, result.rc, result.duration_s), printed
            )
        report = await sandbox.read(REPORT, max_bytes=MAX_REPORT_BYTES)
    except UserError as error:
        return _refused(f"no report: {error}")
    finally:
        await sandbox.kill()
    return RunReport(read_report(report, result.rc, result.duration_s), printed)


def _refused(objection: str) -> RunReport:
    return RunReport(TestRun(NONE, NONE, -1), objection, False, objection=objection)


def visible_command(tests: Tests) -> tuple[str, ...]:
    """What the agent's test tool runs: the same tests, without a report."""
    if tests.command:
        return tuple(fill_command(tests.command, list(tests.files)))
    return ("python3", "-m", "pytest", *PYTEST_FLAGS, "-o", "addopts=") if tests.kind == "pytest" else ()


Runner = Callable[[Mapping[str, bytes]], Awaitable[RunReport]]
