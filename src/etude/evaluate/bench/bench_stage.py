"""Runs one policy on all tasks for all passes: resumable, bounded, with infrastructure errors kept apart and never scored.

A recorded attempt never runs again, so a kill loses at most the attempts in flight. A pass that an infrastructure error ended
is missing: the next run repeats it, and `summary` refuses to average an unfinished table.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from etude.agent.chat.renderer import Renderer
from etude.core.events.log import EventLog
from etude.core.trace.vocabulary import write_vocabulary
from etude.evaluate.bench.outcome import Outcome, OutcomeFile
from etude.rollout.attempt import Attempt, AttemptSetup
from etude.rollout.batch import AttemptJob, run_batch
from etude.rollout.keep import keep_session
from etude.rollout.retry import InfraFault
from etude.tasks.task import Task

# Some of a bench's sessions as files, to read and to replay: of every policy a few solved and a few failed of each
# level.
#
# `sessions/rl/two-bugs-failed-0.jsonl` and so on. Which ones is up to who finishes first; after a kill what lies
# there counts.


class Samples:
    """Keeps at most `count` sessions of one policy for each level and result."""

    def __init__(self, folder: Path, count: int, renderer: Renderer | None) -> None:
        self._folder = folder
        self._count = count
        self._kept = Counter(path.stem.rpartition("-")[0] for path in folder.glob("*.jsonl"))
        if count and renderer is not None:
            write_vocabulary(folder, renderer.vocabulary())

    def take(self, outcome: Outcome, attempt: Attempt) -> None:
        """Write the attempt's session if there are too few of its kind."""
        kind = f"{outcome.level}-{'solved' if outcome.score >= 1 else 'failed'}"
        if self._kept[kind] >= self._count:
            return
        facts = {"stage": "bench", "policy": self._folder.name, "level": outcome.level, "pass": outcome.attempt}
        keep_session(self._folder / f"{kind}-{self._kept[kind]}.jsonl", attempt, facts)
        self._kept[kind] += 1


STAGE = "bench"
PRODUCED = ("thinking", "call", "message", "summary")  # the kinds of tokens that a policy is charged for


class BenchUnfinished(Exception):
    """Some passes could not be made; says how many and why the last one failed."""


@dataclass(frozen=True)
class BenchStage:
    """What all policies of one bench share."""

    tasks: Sequence[Task]
    folder: Path
    concurrency: int
    seed: int
    log: EventLog
    keep_sessions: int = 0
    stage: str = STAGE  # the name under which progress is reported

    async def run(
        self, name: str, setup: AttemptSetup, passes: int, level_passes: Mapping[str, int] | None = None
    ) -> list[Outcome]:
        """All outcomes of policy `name`; `level_passes` has the levels with another number of passes.

        Raises BenchUnfinished if infra faults outlived their retries.
        """
        wanted = self._wanted(passes, level_passes)
        file = OutcomeFile(self.folder / f"{name}.jsonl")
        samples = Samples(self.folder / "sessions" / name, self.keep_sessions, setup.renderer)
        by_id = {task.id: task for task in self.tasks}
        jobs = [
            AttemptJob(task, f"{task.id}#{number}", seed=self._seed(place, number))
            for number in range(max(wanted.values()))
            for place, task in enumerate(self.tasks)
            if number < wanted[task.id] and (task.id, number) not in file.outcomes
        ]
        whole, solved = sum(wanted.values()), sum(o.score for o in file.outcomes.values())

        def take(done: int, total: int, last: Attempt | InfraFault) -> None:
            nonlocal solved
            if isinstance(last, Attempt):
                outcome = read_outcome(last, by_id[last.rollout.task_id])
                file.add(outcome)
                samples.take(outcome, last)
                solved += outcome.score
            made = whole - total + done
            self.log.progress(self.stage, made, whole, policy=name, average=round(100 * solved / made, 1))

        batch = await run_batch(jobs, setup, concurrency=self.concurrency, progress=take)
        if batch.faults:
            last = list(batch.faults.values())[-1]
            raise BenchUnfinished(f"{name}: {len(batch.faults)} of {whole} attempts met infra faults; the last: {last}")
        return self.read(name, passes, level_passes)

    def read(self, name: str, passes: int, level_passes: Mapping[str, int] | None = None) -> list[Outcome]:
        """The outcomes of policy `name` that lie in the folder."""
        wanted = self._wanted(passes, level_passes)
        found = OutcomeFile(self.folder / f"{name}.jsonl").outcomes.values()
        return [o for o in found if o.attempt < wanted.get(o.task_id, 0)]

    def _wanted(self, passes: int, level_passes: Mapping[str, int] | None) -> dict[str, int]:
        """Passes of each task."""
        return {task.id: (level_passes or {}).get(task.level, passes) for task in self.tasks}

    def _seed(self, place: int, number: int) -> int:
        """The same for every policy: with equal weights two policies answer alike, which pairs the comparison further."""
        return self.seed + 1009 * place + 1_000_003 * number


def read_outcome(attempt: Attempt, task: Task) -> Outcome:
    """What the bench keeps of an attempt; everything else is in its session."""
    counters = attempt.rollout.counters
    return Outcome(
        task_id=task.id,
        attempt=int(attempt.rollout.id.rpartition("#")[2]),
        category=task.category,
        level=task.level,
        score=attempt.verdict.score,
        tokens=int(sum(counters[f"{kind}_tokens"] for kind in PRODUCED)),
        tool_calls=int(counters["calls"]),
        turns=int(counters["turns"]),
        seconds=round(attempt.seconds["all"], 4),
        reason=attempt.verdict.reason,
        holdout=task.metadata.get("holdout", ""),
    )
