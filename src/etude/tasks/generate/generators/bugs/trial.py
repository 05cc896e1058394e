"""A set of edits becomes a task, or a reason why not: tried once on the tests concerned, described by what failed, then proved.

What is no task: a bug that no test shows, one that breaks more than half of the tests that ran or stops them from running (a wreck that no one
would commit), one that hangs, one whose failing tests are those of another bug in the same function. The tests that show the bug are not in
the agent's copy (promise 10): they are cut out of their files, or the files are absent where they can't be.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from etude.sandbox.errors import UserError
from etude.tasks.audit import reference_files
from etude.tasks.cheats.exercise import nop
from etude.tasks.content import like
from etude.tasks.fail_to_pass import CandidateRejected
from etude.tasks.generate.generator import InstalledProject, ProofContext
from etude.tasks.generate.generators.bugs.concern import Concern
from etude.tasks.generate.generators.bugs.failures import Failure, read_failures
from etude.tasks.graders.commands import keep_spec, machine, tests_of
from etude.tasks.graders.judged import graded_files
from etude.tasks.real.hiding import hidden
from etude.tasks.running.testrun import Tests, run_tests, visible_command
from etude.tasks.task import Task
from etude.tasks.validation.project import STYLES, TaskDraft, prove_draft, task_of

WRECK = 0.5  # of the tests that ran: SWE-smith keeps any; Repo2RLEnv no more than five tests
OUTPUT_BYTES = 400_000
UNKNOWN: dict[str, str] = dict.fromkeys(map(str, STYLES), "not written yet")


@dataclass
class BugTrial:
    """Of one project: what the bugs found so far break, by place. `changed`: source files with the bug."""

    project: InstalledProject
    bench: ProofContext
    concern: Concern
    shown: dict[tuple[str, frozenset[str]], str] = field(default_factory=dict)

    async def broken_tests(self, draft: TaskDraft, place: str) -> frozenset[str]:
        """The tests that the bug breaks. Raises CandidateRejected, InfraError."""
        task = task_of(draft)
        known = self.concern.passing_tests(draft.tests)
        opener = machine(task, self.bench.pool, keep_spec)
        limit_s = self.concern.limit_s(draft.tests, self.bench.timeout_s)
        ran = await run_tests(tests_of(task), graded_files(task, nop(task)), opener, limit_s)
        if ran.run.timed_out:
            raise CandidateRejected(f"the tests hang with it (over {limit_s:.0f} s)")
        found = (known - ran.run.passed) - self.project.baseline.flaky
        if not found:
            raise CandidateRejected("no test shows it")
        if not ran.run.passed or len(found) > max(1, int(len(known) * WRECK)):
            raise CandidateRejected(f"a wreck: {len(found)} of {len(known)} tests fail with it")
        key = (place, found)
        if self.shown.setdefault(key, draft.id) != draft.id:
            raise CandidateRejected(f"its failing tests are those of {self.shown[key]} at the same place")
        return found

    async def output(self, draft: TaskDraft) -> str:
        """What the runner prints of the bug, tracebacks as Python itself writes them."""
        task = task_of(draft)
        plan = self.project.environment.tests
        argv = [*visible_command(Tests(tuple(draft.tests), plan.command, plan.runner))]
        if plan.runner == "pytest":
            if not plan.command:
                argv += [*draft.tests]
            argv += ["--tb=native", "-o", "console_output_style=classic"]
        try:
            sandbox = await machine(task, self.bench.pool, keep_spec)(graded_files(task, nop(task)))
        except UserError as error:
            raise CandidateRejected(f"its files were refused: {error}") from error
        try:
            result = await sandbox.run(argv, timeout_s=self.bench.timeout_s)
        finally:
            await sandbox.kill()
        return (result.out + b"\n" + result.err)[-OUTPUT_BYTES:].decode("utf-8", "replace")

    def failures(self, output: str, broken: frozenset[str]) -> list[Failure]:
        """Those of the broken tests; flaky ones and canaries say nothing about the bug."""
        names = {name.rpartition("::")[2] for name in broken}
        return [one for one in read_failures(output) if one.name.rpartition(".")[2] in names]

    def without_tests(self, draft: TaskDraft, broken: frozenset[str]) -> TaskDraft:
        """The draft whose workspace lacks the tests that show the bug."""
        tests = {path: self.project.files[path] for path in draft.tests}
        try:
            cut = hidden({path: text for path, text in tests.items() if path.endswith(".py")}, broken)
        except (ValueError, SyntaxError):
            cut = None
        if cut and self.project.environment.language == "python":
            cut = {path: like(tests[path], text) for path, text in cut.items()}
            return replace(draft, changed={**draft.changed, **cut}, hidden={path: tests[path] for path in cut})
        return replace(draft, removed=tuple(tests), hidden=tests)

    async def prove_task(self, draft: TaskDraft, metadata: Mapping[str, Any]) -> Task:
        """The task, sound. Raises CandidateRejected, InfraError."""
        known = self.concern.passing_tests(draft.tests)
        task = await prove_draft(
            replace(draft, metadata={**draft.metadata, **metadata}),
            self.bench.pool,
            self.bench.timeout_s,
            known=known,
            flaky=self.project.baseline.flaky,
            most=max(1, int(len(known) * WRECK)),
        )
        if reference_files(task) == nop(task):
            raise CandidateRejected("its reference changes nothing")
        return task


def draft_of(
    project: InstalledProject,
    task_id: str,
    changed: Mapping[str, str],
    tests: Sequence[str],
    metadata: Mapping[str, Any],
) -> TaskDraft:
    """A debugging task to be: `changed` are the source files with the bug, the reference puts back what the project has."""
    return TaskDraft(
        id=task_id,
        category="debugging",
        level=str(metadata["generator"]),
        prompts=UNKNOWN,
        environment=project.environment,
        base=project.files,
        changed=changed,
        solution={path: project.files[path] for path in changed},
        tests=tests,
        metadata=metadata,
    )
