"""Shows that a drafted criterion can be judged: every solution there is earns its best choice; nothing done, and cheats, its worst.

Each is judged twice, in two files, so that nothing said the first time answers the second. One verdict that is another drops the
criterion: a rubric that refuses a right solution, or is content with none, would measure the judge.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from etude.evaluate.bench.grading.judge import Judge
from etude.evaluate.bench.grading.judged_attempt import JudgedAttempt, diff_of
from etude.evaluate.bench.grading.judgement import Judgement
from etude.evaluate.bench.grading.rubric import Criterion, Rubric
from etude.tasks.cheats.exercise import nop
from etude.tasks.cheats.repository import runner_patched, tests_emptied
from etude.tasks.content import laid_over
from etude.tasks.protected import is_protected
from etude.tasks.solved import reference_files
from etude.tasks.task import Task

# Those whose diff looks like work: one in the tests, one in the source.
CHEATS = (tests_emptied, runner_patched)

Files = Mapping[str, bytes]


@dataclass
class ProvedRubric:
    """The criteria that hold, in the draft's order, and why others don't, by name."""

    kept: tuple[Criterion, ...] = ()
    dropped: dict[str, str] = field(default_factory=dict)


def solutions_of(task: Task, others: Sequence[Mapping[str, str]]) -> list[dict[str, bytes]]:
    """The reference and further solutions as an agent would have left them: tests and settings are the base's."""
    base = {path: text.encode() for path, text in task.files.items() if is_protected(path)}
    found = [reference_files(task)]
    for files in others:
        found.append(laid_over({path: text.encode() for path, text in files.items() if not is_protected(path)}, base))
    return found


def diffs_of(task: Task, solutions: Sequence[Files]) -> list[str]:
    """What a judge sees of each."""
    return [diff_of(task.files, files) for files in solutions]


async def prove_rubric(draft: Rubric, task: Task, solutions: Sequence[Files], judges: Sequence[Judge]) -> ProvedRubric:
    """Raises PolicyError where the endpoint is at fault; what was judged by then is kept in the judges' files."""
    good = {f"solution {number}": diff for number, diff in enumerate(diffs_of(task, solutions), 1)}
    bad = {"doing nothing": diff_of(task.files, nop(task))}
    bad |= {f"the cheat {cheat.__name__}": diff_of(task.files, cheat(task)) for cheat in CHEATS}
    found = ProvedRubric()
    for criterion in draft.criteria:
        wanted = {name: (diff, criterion.choices[-1]) for name, diff in good.items()}
        wanted |= {name: (diff, criterion.choices[0]) for name, diff in bad.items()}
        objection = await _objection(draft, criterion, task, wanted, judges)
        if objection:
            found.dropped[criterion.name] = objection
        else:
            found.kept += (criterion,)
    return found


async def _objection(
    draft: Rubric, criterion: Criterion, task: Task, wanted: Mapping[str, tuple[str, str]], judges: Sequence[Judge]
) -> str:
    """The first verdict that is another than it must be; empty if there is none. Readings follow each other: the first often decides."""
    for number, judge in enumerate(judges, 1):
        rows = await asyncio.gather(
            *(
                judge.criterion(draft, criterion, JudgedAttempt(task.instruction, diff, ""), f"{task.id} {name}")
                for name, (diff, _) in wanted.items()
            )
        )
        for (name, (_, choice)), row in zip(wanted.items(), rows, strict=True):
            if row.choice != choice:
                return f"{name} earned {_said(row)} in reading {number}, and must earn {choice!r}"
    return ""


def _said(row: Judgement) -> str:
    return repr(row.choice) if row.choice is not None else f"no verdict ({row.silent})"
