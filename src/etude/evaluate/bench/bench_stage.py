"""Runs one policy on all tasks for all passes: resumable, bounded, with infrastructure errors kept apart and never scored.

A recorded attempt never runs again, so a kill loses at most the attempts in flight. A pass that an infrastructure error ended
is missing: the next run repeats it, and `summary` refuses to average an unfinished table.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from etude.agent.chat.renderer import Renderer
from etude.core.events.log import EventLog
from etude.core.trace.vocabulary import write_vocabulary
from etude.evaluate.bench.outcome import Outcome, OutcomeFile
from etude.evaluate.bench.pass_jobs import pass_jobs, recorded_passes
from etude.rollout.attempt import Attempt, AttemptSetup
from etude.rollout.batch import AttemptJob, make_attempts
from etude.rollout.campaign import CampaignJob, NullCampaignObserver, run_campaign
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
        done = recorded_passes(file)
        jobs = [*pass_jobs(self.tasks, wanted, self.seed)]
        recorded = sum(job.key in done for job in jobs)
        solved = sum(outcome.score for outcome in file.outcomes.values())

        def append(job: CampaignJob[AttemptJob], made: Attempt) -> Outcome:
            outcome = read_outcome(made, job.work.task)
            file.add(outcome)
            samples.take(outcome, made)
            return outcome

        progress = _StageProgress(self.log, self.stage, name, len(jobs), recorded, solved)
        summary = await run_campaign(
            jobs, make_attempts(setup), done=done, append=append, workers=self.concurrency, observer=progress
        )
        if faults := list(summary.faults.values()):
            raise BenchUnfinished(
                f"{name}: {len(faults)} of {len(jobs)} attempts met infra faults; the last: {faults[-1]}"
            )
        return self.read(name, passes, level_passes)

    def read(self, name: str, passes: int, level_passes: Mapping[str, int] | None = None) -> list[Outcome]:
        """The outcomes of policy `name` that lie in the folder."""
        wanted = self._wanted(passes, level_passes)
        found = OutcomeFile(self.folder / f"{name}.jsonl").outcomes.values()
        return [o for o in found if o.attempt < wanted.get(o.task_id, 0)]

    def _wanted(self, passes: int, level_passes: Mapping[str, int] | None) -> dict[str, int]:
        """Passes of each task."""
        return {task.id: (level_passes or {}).get(task.level, passes) for task in self.tasks}


@dataclass
class _StageProgress(NullCampaignObserver):
    """Reports how many attempts have ended, failed ones included, and the mean score of the others in percent; notes each failure."""

    log: EventLog
    stage: str
    policy: str
    whole: int
    ended: int
    solved: float
    failed: int = 0

    def on_finish(self, job: CampaignJob[Any], record: Outcome) -> None:
        self.solved += record.score
        self._report()

    def on_failure(self, job: CampaignJob[Any], fault: InfraFault) -> None:
        self.failed += 1
        self.log.note(self.stage, f"{self.policy}, no attempt: {fault}")
        self._report()

    def _report(self) -> None:
        self.ended += 1
        average = round(100 * self.solved / max(1, self.ended - self.failed), 1)
        self.log.progress(self.stage, self.ended, self.whole, policy=self.policy, average=average)


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
