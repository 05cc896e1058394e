"""Grader `pytest`: the package's own tests, from the release, in a fresh sandbox; every test that the fixed package passes
must pass.

Promise 9: only source files that the task lets the agent change are taken; tests and configuration are the release's, a
conftest.py or sitecustomize.py that was planted never arrives. What remains open: code of the package runs in the process
that reports its result, so a package that patches pytest itself could lie; the exit status is checked against the report.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

from etude.bench.real.source import PYTEST_FLAGS, tool_binds, tool_path
from etude.sandbox.protocol import InfraError, SandboxPool, SandboxSpec, UserError
from etude.tasks.restore import restored
from etude.tasks.task import Task, Verdict

TIMEOUT_S = 60.0  # the slowest suite takes 2 s on a quiet core
REPORT = "/tmp/report.xml"


def with_pytest(spec: SandboxSpec, cache: Path) -> SandboxSpec:
    """`spec` with the pinned pytest bound read-only and found by the interpreter inside."""
    return replace(
        spec,
        read_only_binds=(*spec.read_only_binds, *tool_binds(cache)),
        env={**spec.env, "PYTHONPATH": tool_path(), "PYTHONDONTWRITEBYTECODE": "1"},
    )


class PytestGrader:
    """Keeps which tests the fixed package passes, found once for each test file."""

    def __init__(self, cache: Path) -> None:
        self.cache = cache
        self._expected: dict[str, frozenset[str]] = {}

    async def grade(self, task: Task, files: dict[str, bytes], pool: SandboxPool) -> Verdict:
        start = time.perf_counter()
        expected = await self._expected_of(task, pool)
        passed, status = await self._run(task, files, pool)
        tests = {name: name in passed for name in sorted(expected)}
        good = all(tests.values()) and status == 0
        failed = next((name for name, ok in tests.items() if not ok), "")
        reason = "" if good else f"failed {failed} (exit {status})" if failed else f"pytest exit {status}"
        return Verdict(float(good), tests, reason, time.perf_counter() - start)

    async def _expected_of(self, task: Task, pool: SandboxPool) -> frozenset[str]:
        key = f"{task.metadata['package']}:{task.hidden['tests']}"
        if key not in self._expected:
            fixed = {path: text.encode() for path, text in (task.files | task.solution).items()}
            passed, status = await self._run(task, fixed, pool)
            if status != 0 or not passed:
                raise InfraError(
                    f"{task.id}: the released package does not pass {task.hidden['tests']} (exit {status})"
                )
            self._expected[key] = passed
        return self._expected[key]

    async def _run(self, task: Task, files: dict[str, bytes], pool: SandboxPool) -> tuple[frozenset[str], int]:
        """Names of the tests that passed, and pytest's exit status."""
        spec = SandboxSpec(files=restored(task, files))
        sandbox = await pool.create(with_pytest(spec, self.cache))
        argv = ["python3", "-m", "pytest", *PYTEST_FLAGS, f"--junitxml={REPORT}", task.hidden["tests"]]
        try:
            result = await sandbox.run(argv, timeout_s=TIMEOUT_S)
            report = await sandbox.read(REPORT, max_bytes=4 << 20)
        except UserError:
            return frozenset(), 1  # no report: it hung, died, or wrote none
        finally:
            await sandbox.kill()
        return _passed(report), result.rc


def _passed(report: bytes) -> frozenset[str]:
    """Test cases of a JUnit report without a failure, an error or a skip."""
    try:
        root = ElementTree.fromstring(report)
    except ElementTree.ParseError:
        return frozenset()
    return frozenset(f"{case.get('classname')}::{case.get('name')}" for case in root.iter("testcase") if len(case) == 0)
