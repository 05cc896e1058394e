"""Grader `pytest`: the package's own tests, from the release, in a fresh sandbox; every test that the fixed package passes
must pass.

Promise 9: only source files that the task lets the agent change are taken; tests and configuration are the release's, a
conftest.py or sitecustomize.py that was planted never arrives. Code of the package runs in the process that reports its
result, so it could patch pytest; tests that must fail, under names drawn for each run, catch a change that turns failures into passes
wholesale, be it now and then. What remains open: a package that lies about the tests it knows by name.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from pathlib import Path

from etude.sandbox.errors import InfraError, UserError
from etude.sandbox.protocol import Machines
from etude.sandbox.spec import SandboxSpec
from etude.tasks.restore import restore_files
from etude.tasks.running.pin import default_cache
from etude.tasks.running.pytest_tools import PYTEST_FLAGS, with_pytest
from etude.tasks.running.report import TestRun, canaries, canary_name, caught, read_report
from etude.tasks.task import Task, Verdict

# The slowest suite takes 6 s on a quiet core. The release's own time on this machine separates what hangs from what is slow.
RELEASE_TIMEOUT_S = 600.0
FEWEST_S = 60.0
TIMES = 10.0
MAX_FILE_BYTES = 1 << 20  # the largest source file has 176 kB
REPORT = "/tmp/report.xml"


class PytestGrader:
    """Keeps how the fixed package does, found once for each choice of tests."""

    def __init__(self, cache: Path | None = None) -> None:
        self._cache = cache
        self._release: dict[str, TestRun] = {}
        self._measuring: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    @property
    def cache(self) -> Path:
        """Where the pinned pytest lies."""
        return self._cache or default_cache()

    async def grade(self, task: Task, files: dict[str, bytes], pool: Machines) -> Verdict:
        start = time.perf_counter()
        release = await self._release_of(task, pool)
        canary = canary_name()
        found = await self._run(task, files, canary, max(FEWEST_S, TIMES * release.seconds), pool)
        tests = {name: name in found.passed for name in sorted(release.passed)}
        reason = _objection(task, tests, found, canary)
        return Verdict(float(not reason), tests, reason, time.perf_counter() - start)

    async def _release_of(self, task: Task, pool: Machines) -> TestRun:
        key = " ".join([task.metadata["package"], task.metadata["version"], *task.hidden["tests"]])
        async with self._measuring[key]:  # attempts that end together share one run
            if key not in self._release:
                self._release[key] = await self._measure(task, pool)
        missing = set(task.hidden["fails"]) - self._release[key].passed
        if missing:
            raise InfraError(f"{task.id}: the release does not pass {', '.join(sorted(missing))} here")
        return self._release[key]

    async def _measure(self, task: Task, pool: Machines) -> TestRun:
        fixed = {path: text.encode() for path, text in (task.files | task.solution).items()}
        canary = canary_name()
        found = await self._run(task, fixed, canary, RELEASE_TIMEOUT_S, pool)
        if not caught(found, canary) or not found.passed:
            raise InfraError(f"{task.id}: the release's own tests do not run here (pytest exit {found.rc})")
        return found

    async def _run(self, task: Task, files: dict[str, bytes], canary: str, timeout_s: float, pool: Machines) -> TestRun:
        """The release's tests, and canaries in files next to them."""
        graded = restore_files(task, files, max_file_bytes=MAX_FILE_BYTES)
        graded |= {path: text.encode() for path, text in task.hidden["files"].items()}
        canary_files = [f"{task.metadata['tests']}/{canary}_{when}.py" for when in ("first", "last")]
        graded |= {path: text.encode() for path, text in zip(canary_files, canaries(canary), strict=True)}
        sandbox = await pool.create(with_pytest(SandboxSpec(files=graded), self.cache))
        chosen = [*task.hidden["flags"], canary_files[0], *task.hidden["tests"], canary_files[1]]
        argv = ["python3", "-m", "pytest", *PYTEST_FLAGS, f"--junitxml={REPORT}", *chosen]
        try:
            result = await sandbox.run(argv, timeout_s=timeout_s)
            if result.timed_out:
                return TestRun(frozenset(), frozenset(), result.rc, timeout_s, timed_out=True)
            report = await sandbox.read(REPORT, max_bytes=4 << 20)
        except UserError:
            return TestRun(frozenset(), frozenset(), -1)  # no report: the run died, or wrote none
        finally:
            await sandbox.kill()
        return read_report(report, result.rc, result.duration_s)


def _objection(task: Task, tests: dict[str, bool], found: TestRun, canary: str) -> str:
    """Why the attempt doesn't count; empty if it does."""
    if found.timed_out:
        return f"the tests took longer than {found.seconds:.0f} s"
    if not found.passed:
        return f"the tests did not run (pytest exit {found.rc})"
    if not caught(found, canary):
        return "a test that must fail was reported as passed, or pytest did not end as it does"
    for name in task.hidden["fails"]:
        if not tests[name]:
            return f"the bug is still there: failed {name}"
    return next((f"broke something else: failed {name}" for name, good in tests.items() if not good), "")
