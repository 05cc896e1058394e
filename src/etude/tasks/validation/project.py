"""Turns a change over an installed project into a proved task; every generator of real projects calls it.

    draft = TaskDraft("debugging/click-8.1.7/off-by-one/17", "debugging", "bug-injection", prompts, environment, base, changed={...}, ...)
    task = await prove_draft(draft, context.pool, context.timeout_s, known=baseline.passed, flaky=baseline.flaky)

The cheap steps come first. One run of the chosen test files rejects most candidates; `known`, the baseline of the
untouched project, replaces the run after the change. The repeats run only if the first run shows a failing test and the
sandbox, searched whole, does not hold the answer. Then the reference must score 1, no change 0 and some cheats 0, each
in a fresh fork (`etude tasks check` tries all cheats).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from etude.sandbox.protocol import Machines
from etude.tasks.auditing.secrecy import require_secret
from etude.tasks.cheats.exercise import nop
from etude.tasks.cheats.repository import few_for
from etude.tasks.environment.environment import KEY, Environment
from etude.tasks.environment.workspace import OVERLAY, overlay
from etude.tasks.fail_to_pass import CandidateRejected, FailToPassProof, prove_fail_to_pass
from etude.tasks.graders.commands import NAME, CommandsGrader, machine, tests_of
from etude.tasks.graders.judged import XFAILED, graded_files
from etude.tasks.protected import is_protected
from etude.tasks.running.testrun import RunReport, Tests, run_tests, visible_command
from etude.tasks.solved import reference_files
from etude.tasks.task import Task
from etude.tasks.validation.change import GradingContext, on_a_later_date, require_sound

STYLES = ("terse", "ambiguous", "full")


@dataclass(frozen=True)
class TaskDraft:
    """A task before its proof.

    `base`: the tree of the snapshot. The agent starts from `base` with `changed` written over it and `removed` deleted.
    The reference writes `solution` (whole files) and deletes `gone`. `hidden`: tests and settings of the reference that
    the agent lacks; `hidden_removed` are deleted for grading. `tests`: the affected test files, which are run.
    """

    id: str
    category: str
    level: str
    prompts: Mapping[str, str]  # terse, ambiguous, full
    environment: Environment
    base: Mapping[str, str]
    changed: Mapping[str, str] = field(default_factory=dict)
    removed: Sequence[str] = ()
    solution: Mapping[str, str] = field(default_factory=dict)
    gone: Sequence[str] = ()
    hidden: Mapping[str, str] = field(default_factory=dict)
    hidden_removed: Sequence[str] = ()
    tests: Sequence[str] = ()
    style: str = "full"  # which of the prompts is the instruction
    metadata: Mapping[str, Any] = field(default_factory=dict)  # generator, operators, project …
    split: str = "train"


def task_of(draft: TaskDraft) -> Task:
    """The task before any test ran, without lists of tests. Raises CandidateRejected for an unusable draft."""
    _require_work(draft)
    files = {**draft.base, **draft.changed}
    for path in draft.removed:
        files.pop(path, None)
    plan = draft.environment.tests
    tests = Tests(tuple(draft.tests), plan.command, plan.runner)
    facts = {
        KEY: draft.environment.to_record(),
        OVERLAY: overlay(draft.base, files),
        "project": draft.environment.name,
        "prompts": dict(draft.prompts),
        "style": draft.style,
        "removed": sorted(draft.gone),
        "changed": _size(files, draft),
    }
    return Task(
        id=draft.id,
        category=draft.category,
        level=draft.level,
        instruction=draft.prompts[draft.style],
        files=files,
        test_command=visible_command(replace(tests, files=())),
        grader=NAME,
        hidden={
            "files": dict(draft.hidden),
            "removed": list(draft.hidden_removed),
            "tests": list(draft.tests),
            "command": list(plan.command),
            "runner": plan.runner,
        },
        solution=dict(draft.solution),
        split=draft.split,  # type: ignore[arg-type]
        metadata={**facts, **draft.metadata},
    )


def _require_work(draft: TaskDraft) -> None:
    """Rejects a draft that lacks a prompt, or whose reference leaves an agent nothing to do."""
    if missing := [style for style in STYLES if not draft.prompts.get(style, "").strip()]:
        raise CandidateRejected(f"it has no prompt in the style {', '.join(missing)}")
    if not draft.solution and not draft.gone:
        raise CandidateRejected("its reference changes nothing: there is nothing for an agent to do")
    if closed := sorted(path for path in {*draft.solution, *draft.gone} if is_protected(path)):
        raise CandidateRejected(f"its reference changes {closed[0]}, which is a test or decides how tests run")


async def prove_draft(
    draft: TaskDraft,
    pool: Machines,
    timeout_s: float = 120.0,
    *,
    known: frozenset[str] | None = None,
    flaky: frozenset[str] = frozenset(),
    most: int | None = None,
    xfail: bool = False,
) -> Task:
    """Returns the proved task.

    `known`: tests that pass after the change, where the baseline of the chosen files shows it. `flaky`: tests that
    never count. `most`: limit of failing tests; more of them are too many for a task. Raises CandidateRejected,
    InfraError.
    """
    task = task_of(draft)
    grader = CommandsGrader()

    async def run(files: Mapping[str, bytes]) -> RunReport:
        return await run_tests(tests_of(task), files, machine(task, pool, grader.fit), timeout_s)

    before, after = graded_files(task, nop(task)), graded_files(task, reference_files(task))

    async def look() -> None:
        await require_secret(task, pool)

    later = on_a_later_date(tests_of(task), task, pool, grader.fit, timeout_s)
    proof = await prove_fail_to_pass(
        before, after, run, known_passing=known, max_failing=most, cheap_check=look, run_later=later, xfail=xfail
    )
    task = _with_proof(task, _without_flaky(proof, flaky))
    await require_sound(task, GradingContext(pool, grader, timeout_s), few_for(task))
    return task


def _without_flaky(proof: FailToPassProof, flaky: frozenset[str]) -> FailToPassProof:
    fail_to_pass = tuple(name for name in proof.fail_to_pass if name not in flaky)
    if not fail_to_pass:
        raise CandidateRejected(f"the tests that show the change are flaky: {', '.join(proof.fail_to_pass[:3])}")
    pass_to_pass = tuple(name for name in proof.pass_to_pass if name not in flaky)
    return replace(
        proof, fail_to_pass=fail_to_pass, pass_to_pass=pass_to_pass, flaky=tuple(sorted({*proof.flaky, *flaky}))
    )


def _with_proof(task: Task, found: FailToPassProof) -> Task:
    proof = {
        "fail_to_pass": list(found.fail_to_pass),
        "pass_to_pass": list(found.pass_to_pass),
        "seconds": found.seconds,
        "universal": list(found.universal),
        **({XFAILED: list(found.xfailed)} if found.xfailed else {}),
    }
    facts = {"flaky": list(found.flaky), "dates": found.dates}
    return replace(task, hidden={**task.hidden, **proof}, metadata={**task.metadata, **facts})


def _size(files: Mapping[str, str], draft: TaskDraft) -> dict[str, int]:
    """Added and removed lines of the reference, by difflib's opcodes, and the number of its files."""
    from difflib import SequenceMatcher

    lines = sum(len(files[path].splitlines()) for path in draft.gone if path in files)
    for path, text in draft.solution.items():
        old, new = files.get(path, "").splitlines(), text.splitlines()
        for tag, i, j, k, n in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
            lines += 0 if tag == "equal" else (j - i) + (n - k)
    return {"lines": lines, "files": len({*draft.solution, *draft.gone})}
