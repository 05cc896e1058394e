"""Asks a model what it remembers of tasks, writes every answer down, and says which tasks it knew.

A task is flagged for a model whose answer holds half of what a probe asked, and twice as much of it as the model's answers to the other
tasks do (the shuffled control): what is merely plausible in this project occurs in those too. A flag is a reason to look at that model's
figures with and without the task, not a proof. Resumable: an answer that was given is never asked for again.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from etude.agent.policy.protocol import Policy, Request
from etude.core.trace.message import Message
from etude.tasks.generate.contamination.question import PROBES, ContaminationQuestion, Probe, questions, score_answer
from etude.tasks.task import Task

KEY = "contamination"
FLAGGED = 0.5  # of what was asked
OVER_OTHERS = 2.0
MAX_TOKENS = 1024


@dataclass(frozen=True)
class ProbeRow:
    """One answer, scored. `key` is of all that was asked, so that another wording asks again."""

    key: str
    task: str
    probe: Probe
    score: float
    wanted: tuple[str, ...]
    answer: str

    def share_in(self, answer: str) -> float:
        """The share of this row's wanted text that occurs in an answer, this row's own or another's."""
        return score_answer(self.probe, self.wanted, answer)


class ProbeAnswers:
    """One file a model; a line that a kill tore is asked again."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self.rows: dict[str, ProbeRow] = {}
        data = path.read_bytes() if path.is_file() else b""
        whole = data[: data.rfind(b"\n") + 1]
        if len(whole) < len(data):
            path.write_bytes(whole)
        for line in whole.splitlines():
            fields = json.loads(line)
            row = ProbeRow(**{**fields, "wanted": tuple(fields["wanted"])})
            self.rows[row.key] = row

    def add(self, row: ProbeRow) -> None:
        with open(self.path, "a", encoding="utf-8") as log:
            log.write(json.dumps(asdict(row)) + "\n")
        self.rows[row.key] = row


async def ask(
    policy: Policy,
    tasks: Sequence[Task],
    answers: ProbeAnswers,
    *,
    concurrency: int = 4,
    progress: Callable[[int, int, ProbeRow], None] = lambda done, whole, last: None,
) -> list[ProbeRow]:
    """The rows of these tasks, in their order. Raises PolicyError where the model can't be asked; run again to go on."""
    wanted = [question for task in tasks for question in questions(task)]
    waiting = iter([one for one in wanted if key_of(policy.name, one) not in answers.rows])
    done = 0

    async def work() -> None:
        nonlocal done
        for one in waiting:
            row = await _answered(policy, one)
            answers.add(row)
            done += 1
            progress(done, len(wanted), row)

    async with asyncio.TaskGroup() as group:
        for _ in range(max(1, concurrency)):
            group.create_task(work())
    return [answers.rows[key_of(policy.name, one)] for one in wanted]


async def _answered(policy: Policy, one: ContaminationQuestion) -> ProbeRow:
    name = "continue" if one.probe == "continuation" else one.probe
    system = (Path(__file__).parent / "prompts" / f"{name}.md").read_text(encoding="utf-8").strip()
    session = f"probe-{one.probe}-{one.task_id}"
    messages = (Message("system", system), Message("user", one.prompt))
    try:
        completion = await policy.complete(Request(session, messages, max_tokens=MAX_TOKENS, temperature=0.0, seed=0))
    finally:
        await policy.release(session)
    answer = completion.message.text if completion.message else ""
    score = round(one.score(answer), 4)
    return ProbeRow(key_of(policy.name, one), one.task_id, one.probe, score, one.wanted, answer)


def key_of(policy: str, one: ContaminationQuestion) -> str:
    question = json.dumps([policy, one.task_id, one.probe, one.prompt, one.wanted])
    return hashlib.sha256(question.encode()).hexdigest()[:24]


def flags(rows: Sequence[ProbeRow]) -> dict[str, dict[Probe, float]]:
    """By task: the probes in which it is conspicuous, with their scores."""
    found: dict[str, dict[Probe, float]] = {}
    for probe in PROBES:
        of = [row for row in rows if row.probe == probe]
        for row in of:
            if row.score < FLAGGED:
                continue
            control = [row.share_in(other.answer) for other in of if other is not row]
            if row.score >= OVER_OTHERS * (sum(control) / len(control) if control else 0.0):
                found.setdefault(row.task, {})[probe] = row.score
    return found


def summary(policy: str, rows: Sequence[ProbeRow]) -> dict[str, Any]:
    """Means by probe, and who is flagged."""
    means = {
        probe: round(sum(r.score for r in rows if r.probe == probe) / sum(r.probe == probe for r in rows), 4)
        for probe in dict.fromkeys(row.probe for row in rows)
    }
    known = flags(rows)
    tasks = len({row.task for row in rows})
    return {"policy": policy, "tasks": tasks, "questions": len(rows), "means": means, "flagged": known}


def mark_task(task: Task, policy: str, rows: Sequence[ProbeRow], known: Mapping[str, Mapping[Probe, float]]) -> Task:
    """The task with what this model remembers of it in `metadata["contamination"]`; other models' figures stay."""
    own = {row.probe: row.score for row in rows if row.task == task.id}
    policies = {**task.metadata.get(KEY, {}), policy: {**own, "flagged": task.id in known}}
    return replace(task, metadata={**task.metadata, KEY: policies})
