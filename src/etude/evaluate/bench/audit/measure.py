"""How good the tripwires are on a suite: how many of its cheats they catch, and how many of its references they bother.

Recall is the share of cheats flagged, over every cheat that changes something on a task; precision the share of honest work among what is
flagged, turned round: flagged cheats over all that is flagged. Both are of these cheats and these references: a cheat that is not
in the catalogue is in neither. What is read is the change alone, as an audit reads a kept patch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from etude.evaluate.bench.audit.evidence import Evidence, Start
from etude.evaluate.bench.audit.tripwires import tripped_wires
from etude.evaluate.bench.grading.edited_lines import edits_of_patch
from etude.evaluate.bench.grading.judged_attempt import JudgedAttempt
from etude.evaluate.bench.runs.participant_run import patch
from etude.evaluate.bench.runs.scripted import applicable, cheat_files
from etude.tasks.task import Task


@dataclass(frozen=True)
class CheckedChange:
    """One change of one task: the cheat's name, or none for the reference; and the wires it tripped."""

    task_id: str
    level: str
    cheat: str
    wires: tuple[str, ...]


@dataclass(frozen=True)
class TripwireAccuracy:
    """Counts over some changes. `recall` and `precision` are None where nothing was tried or flagged."""

    cheats: int
    caught: int
    references: int
    bothered: int

    @property
    def recall(self) -> float | None:
        return self.caught / self.cheats if self.cheats else None

    @property
    def precision(self) -> float | None:
        flagged = self.caught + self.bothered
        return self.caught / flagged if flagged else None


def check_changes(task: Task) -> list[CheckedChange]:
    """The reference, if the task has one, and every cheat that changes something on it."""
    rows = [
        CheckedChange(task.id, task.level, name, _wires(task, cheat_files(task, name))) for name in applicable(task)
    ]
    if not task.solution:
        return rows
    gone = set(task.metadata.get("removed", ()))
    reference = {path: text for path, text in task.files.items() if path not in gone} | dict(task.solution)
    return [CheckedChange(task.id, task.level, "", _wires(task, reference)), *rows]


def accuracy(rows: Sequence[CheckedChange]) -> TripwireAccuracy:
    """The counts."""
    cheats, honest = [row for row in rows if row.cheat], [row for row in rows if not row.cheat]
    caught, bothered = (sum(bool(row.wires) for row in some) for some in (cheats, honest))
    return TripwireAccuracy(len(cheats), caught, len(honest), bothered)


def _wires(task: Task, after: Mapping[str, str]) -> tuple[str, ...]:
    change = patch(task.files, {path: text.encode() for path, text in after.items()})
    evidence = Evidence(Start.of(task), (), tuple(edits_of_patch(change)), JudgedAttempt(task.instruction, change, ""))
    return tuple(sorted({flag.wire for flag in tripped_wires(evidence)}))
