"""Which defects the project's own tests show: tried one by one, each in a fresh sandbox."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from etude.tasks.environment.environment import KEY
from etude.tasks.environment.workspace import OVERLAY
from etude.tasks.fail_to_pass import CandidateRejected
from etude.tasks.generate.generator import InstalledProject, ProofContext
from etude.tasks.generate.generators.kinds.defects import Defect
from etude.tasks.graders.commands import keep_spec, machine
from etude.tasks.graders.edits import apply_edits, encode_files
from etude.tasks.graders.mutants import tests_of
from etude.tasks.running.testrun import RunReport, run_tests
from etude.tasks.task import Task

TOGETHER = 2
PATIENCE = 5.0  # times what the tests take on the right code: a defect that makes them hang is none to keep


@dataclass(frozen=True)
class Right:
    """The tests on the right code."""

    passed: frozenset[str]
    failed: frozenset[str]
    seconds: float


class MutantTrial:
    """Runs some test files of the project over variants of it."""

    def __init__(self, project: InstalledProject, tests: Sequence[str], bench: ProofContext) -> None:
        self.project, self.tests, self.bench = project, tuple(tests), bench
        metadata = {KEY: project.environment.to_record(), OVERLAY: {}}
        self._task = Task("trial", "tests", "trial", "", dict(project.files), (), "mutants", metadata=metadata)

    async def run(
        self, files: Mapping[str, str], timeout_s: float | None = None, needed: Collection[str] = ()
    ) -> RunReport:
        """`needed`: tests of which the first that does not pass ends the run."""
        fresh = machine(self._task, self.bench.pool, keep_spec)
        limit_s = self.bench.timeout_s if timeout_s is None else timeout_s
        return await run_tests(tests_of(self._task, self.tests, needed), encode_files(files), fresh, limit_s)

    async def right_outcome(self) -> Right:
        """Raises CandidateRejected where the tests do not run on the code as it is."""
        ran = await self.run(self.project.files)
        if ran.run.timed_out or not ran.run.passed or not ran.honest:
            raise CandidateRejected(
                f"its tests do not run on the code as it is (status {ran.run.rc}): {' '.join(ran.output.split())}"
            )
        return Right(ran.run.passed, ran.run.failed, ran.run.seconds)

    async def noticed_defects(self, found: Sequence[Defect], right: Right, wanted: int, tried: int) -> list[Defect]:
        """The first `wanted` of the defects that a test shows, of `tried` at most."""
        kept: list[Defect] = []
        limit_s = max(10.0, PATIENCE * right.seconds)
        for at in range(0, min(len(found), tried), TOGETHER):
            batch = found[at : min(at + TOGETHER, tried)]
            runs = await asyncio.gather(
                *(self.run(apply_edits(self.project.files, [one.edit()]), limit_s, right.passed) for one in batch)
            )
            # A time-out is shown too, and costs every grading its whole limit: not kept.
            kept += [
                one
                for one, ran in zip(batch, runs, strict=True)
                if not ran.run.timed_out and right.passed - ran.run.passed
            ]
            if len(kept) >= wanted:
                break
        return kept[:wanted]
