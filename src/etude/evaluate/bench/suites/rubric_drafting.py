"""Rubrics for the tasks of a suite to be: drafted, proved, written down as they are decided, so that a kill costs what was in flight.

In the workshop's folder: `drafts.jsonl`, one line a task, and `judgements-1.jsonl`, `judgements-2.jsonl`, what the two readings said.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import tomli_w

from etude.agent.policy.protocol import Policy
from etude.evaluate.bench.grading.judge import Judge, Price
from etude.evaluate.bench.grading.judgement import JudgementFile, cost_of
from etude.evaluate.bench.grading.rubric import Criterion
from etude.evaluate.bench.suites.rubric_draft import SEES, conventions, draft_rubric
from etude.evaluate.bench.suites.rubric_proof import diffs_of, prove_rubric, solutions_of
from etude.tasks.place import folder_of
from etude.tasks.task import Task

READINGS = 2
NONE = "no rubrics: no model is named to draft them (--rubrics URL#MODEL)"

Others = Callable[[Task], Sequence[Mapping[str, str]]]
RubricProgress = Callable[[int, int, "RubricDecision"], None]


@dataclass(frozen=True)
class RubricDecision:
    """What became of one task's draft: criteria as their rows, those dropped with the reason, or why there was no draft."""

    id: str
    by: str
    solutions: int = 0
    kept: list[dict[str, Any]] = field(default_factory=list)
    dropped: dict[str, str] = field(default_factory=dict)
    silent: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    dollars: float | None = None


@dataclass
class DraftedRubrics:
    """Rubrics by the names of their files, and the account of how they were made."""

    texts: dict[str, str]
    account: dict[str, Any]


class RubricDrafter:
    """Asks `policy` for drafts and for verdicts. What it decided lies in `folder`; another policy's decisions there are not its own."""

    def __init__(self, policy: Policy, folder: Path, price: Price) -> None:
        self._policy, self._price = policy, price
        folder.mkdir(parents=True, exist_ok=True)
        files = [JudgementFile(folder / f"judgements-{number}.jsonl") for number in range(1, READINGS + 1)]
        self._judges = [Judge(policy, file, price=price) for file in files]
        self._log = folder / "drafts.jsonl"
        self._known = {row.id: row for row in self._read() if row.by == policy.name}

    async def draft_all(self, tasks: Sequence[Task], others: Others, progress: RubricProgress) -> DraftedRubrics:
        """Raises PolicyError where the endpoint is at fault; run again then, what was decided is kept."""
        for number, task in enumerate(tasks, 1):
            if task.id not in self._known:
                self._keep(await self._decided(task, others(task)))
            progress(number, len(tasks), self._known[task.id])
        return self._result([self._known[task.id] for task in tasks])

    async def _decided(self, task: Task, others: Sequence[Mapping[str, str]]) -> RubricDecision:
        solutions = solutions_of(task, others)
        name = folder_of(Path(), task.id).name
        convention_files = conventions(task.files)
        draft = await draft_rubric(self._policy, name, task.instruction, diffs_of(task, solutions), convention_files)
        usage = draft.tally.usage
        cost: dict[str, Any] = {
            "input_tokens": usage.input_tokens,
            "output_tokens": usage.output_tokens,
            "dollars": None if draft.tally.unreported else self._price(usage),
        }
        who = (task.id, self._policy.name, len(solutions))
        if draft.rubric is None:
            return RubricDecision(*who, silent=draft.silent, **cost)
        found = await prove_rubric(draft.rubric, task, solutions, self._judges)
        return RubricDecision(*who, [_row(one) for one in found.kept], found.dropped, **cost)

    def _keep(self, decided: RubricDecision) -> None:
        with open(self._log, "a", encoding="utf-8") as log:
            log.write(json.dumps(asdict(decided)) + "\n")
        self._known[decided.id] = decided

    def _read(self) -> list[RubricDecision]:
        """A torn last line is no decision, and goes."""
        if not self._log.is_file():
            return []
        data = self._log.read_bytes()
        whole = data[: data.rfind(b"\n") + 1]
        if len(whole) < len(data):
            self._log.write_bytes(whole)
        return [RubricDecision(**json.loads(line)) for line in whole.splitlines()]

    def _result(self, rows: Sequence[RubricDecision]) -> DraftedRubrics:
        names = {row.id: folder_of(Path(), row.id).name for row in rows}
        texts = {
            names[row.id]: tomli_w.dumps({"name": names[row.id], "criteria": row.kept}) for row in rows if row.kept
        }
        judging = cost_of(row for judge in self._judges for row in judge.file.rows)
        account = {
            "by": self._policy.name,
            "readings": READINGS,
            "tasks": len(rows),
            "with_rubric": len(texts),
            "criteria_kept": sum(len(row.kept) for row in rows),
            "criteria_dropped": sum(len(row.dropped) for row in rows),
            "dropped": {f"{row.id}/{name}": why for row in rows for name, why in row.dropped.items()},
            "no_draft": {row.id: row.silent for row in rows if row.silent},
            "one_solution_only": [row.id for row in rows if row.solutions == 1],
            "drafting": {
                "input_tokens": sum(row.input_tokens for row in rows),
                "output_tokens": sum(row.output_tokens for row in rows),
                "dollars": _sum([row.dollars for row in rows]),
            },
            "judging": asdict(judging),
        }
        return DraftedRubrics(texts, account)


def _row(criterion: Criterion) -> dict[str, Any]:
    return {
        "name": criterion.name,
        "question": criterion.question,
        "choices": list(criterion.choices),
        "sees": list(SEES),
    }


def _sum(dollars: Sequence[float | None]) -> float | None:
    known = [one for one in dollars if one is not None]
    return round(sum(known), 6) if len(known) == len(dollars) else None
