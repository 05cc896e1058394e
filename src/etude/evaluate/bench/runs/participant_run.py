"""Runs one participant on all tasks, pass after pass: bounded, resumable, within the budget. Infrastructure errors are never scored.

Promises. A recorded attempt never runs again, and an attempt is one appended line, so a kill at any moment loses at most
the attempts in flight and counts none twice. Passes go over all tasks before the next begins, so a run that stops early leaves
whole passes. A pass that infrastructure errors ended is missing, is reported, and is repeated by the next run (promise 8).
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from etude.agent.policy.protocol import Policy
from etude.core.events.log import EventLog
from etude.core.trace.completion import Usage
from etude.core.trace.unicode import whole
from etude.evaluate.bench.bench_stage import read_outcome
from etude.evaluate.bench.outcome import Outcome, OutcomeFile
from etude.evaluate.bench.pass_jobs import pass_jobs, recorded_passes
from etude.evaluate.bench.prices import Price
from etude.evaluate.bench.runs.budget import BudgetSpent, ParticipantBudget, RunBudget
from etude.evaluate.bench.runs.cost import UsageMissing, dollars_of_usage
from etude.evaluate.bench.runs.folder import RunFolder, append_line, replace_text
from etude.evaluate.bench.runs.participant import Participant, ParticipantPolicy
from etude.evaluate.bench.runs.tally import Charge, ParticipantUsage
from etude.evaluate.bench.suites.suite import Suite
from etude.evaluate.bench.suites.task_size import TaskSize, shape_of
from etude.rollout.attempt import Attempt, AttemptSetup, Script
from etude.rollout.batch import AttemptJob, make_attempts
from etude.rollout.campaign import CampaignJob, NullCampaignObserver, run_campaign
from etude.rollout.code_search import CodeSearch
from etude.rollout.keep import keep_session
from etude.rollout.retry import InfraFault
from etude.rollout.settings import AttemptSettings
from etude.sandbox.protocol import Machines
from etude.tasks.content import file_text, is_text, same_content
from etude.tasks.task import Task

# What is kept of an attempt in addition to its outcome: the session and the agent's change, for people, `report` and
# the auditor.


def write_attempt_files(path: Path, attempt: Attempt, task: Task, facts: Mapping[str, object]) -> None:
    """Writes the session to `path` and the patch next to it. Written before the outcome, so that a counted attempt has both."""
    keep_session(path, attempt, {"stage": "bench", "level": task.level, **facts})
    replace_text(path.with_suffix(".patch"), patch(task.files, attempt.files))


def patch(before: Mapping[str, str], after: Mapping[str, bytes]) -> str:
    """A unified diff, files in order. A file that is no text before or after, or is a link, has one line. A name that is no text has U+FFFD
    where it is none. Empty if nothing changed, or no file came back."""
    parts = []
    for path in sorted({*before, *after}) if after else []:
        old, data = before.get(path), after.get(path)
        if old is not None and same_content(old, data):
            continue
        name, new = whole(path), None if data is None else file_text(data)
        if not is_text(old or "") or not is_text(new or ""):
            parts.append(f"Binary file {name} {'added' if old is None else 'removed' if new is None else 'differs'}\n")
            continue
        lines = difflib.unified_diff(
            (old or "").splitlines(keepends=True),
            (new or "").splitlines(keepends=True),
            "/dev/null" if old is None else f"a/{name}",
            "/dev/null" if new is None else f"b/{name}",
        )
        parts += [line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines]
    return "".join(parts)


@dataclass(frozen=True)
class Bench:
    """What all participants share. Tasks are in the suite's order: a task's place and the pass make its seed, the same for all."""

    suite: Suite
    tasks: Sequence[Task]
    folder: RunFolder
    pool: Machines
    log: EventLog
    budget: RunBudget
    passes: int
    concurrency: int
    seed: int
    _shapes: dict[str, TaskSize] = field(default_factory=dict)

    def shape(self, task: Task) -> TaskSize:
        """How large its reference change is; found once for all participants."""
        if task.id not in self._shapes:
            self._shapes[task.id] = shape_of(task)
        return self._shapes[task.id]


@dataclass
class ParticipantProgress:
    """The result: attempts made now and still missing, faults by attempt, and why it ended early, if it did."""

    key: str
    made: int = 0
    missing: int = 0
    faults: dict[str, str] = field(default_factory=dict)
    stopped: str = ""


class ParticipantRun(NullCampaignObserver):
    """All attempts of one participant as a campaign, which it observes.

    `run` raises EndpointGone where the policy's server is lost; attempts made by then are kept."""

    def __init__(
        self,
        bench: Bench,
        participant: Participant,
        limits: AttemptSettings,
        price: Price | None = None,
        search: CodeSearch | None = None,
    ) -> None:
        self._bench, self._participant, self._limits, self._price, self._search = bench, participant, limits, price, search
        self._file = OutcomeFile(bench.folder.outcomes(participant.key))
        self._dearest_turn: float | None = None
        wanted = {(task.id, number) for task in bench.tasks for number in range(bench.passes)}
        self.kept = [o for key, o in self._file.outcomes.items() if key in wanted]
        self._whole = len(wanted)
        self.progress = ParticipantProgress(participant.key, missing=len(wanted) - len(self.kept))

    async def run(self) -> ParticipantProgress:
        """Ask what is missing."""
        self._tell()
        if not self.progress.missing:
            return self.progress
        async with self._participant.open() as ready:
            tally = ParticipantUsage(self._participant.key, self._bench.folder.usage, ready.engine, self._pay)
            setup = self._setup(ready, tally)
            await self._run_campaign(setup, tally)
        self._tell()
        return self.progress

    async def _run_campaign(self, setup: AttemptSetup, tally: ParticipantUsage) -> None:
        bench, key = self._bench, self._participant.key
        passes = dict.fromkeys((task.id for task in bench.tasks), bench.passes)
        try:
            await run_campaign(
                pass_jobs(bench.tasks, passes, bench.seed),
                make_attempts(setup),
                done=recorded_passes(self._file),
                append=partial(self._append, tally),
                workers=bench.concurrency,
                budget=None if self._price is None else ParticipantBudget(bench.budget, key),
                observer=self,
            )
        except BudgetSpent:
            self.on_stop(bench.budget.stop_reason(key))

    def _setup(self, ready: ParticipantPolicy, tally: ParticipantUsage) -> AttemptSetup:
        inner = ready.policy
        if callable(inner):
            script: Script = inner

            def tallied(task: Task, seed: int) -> Policy:
                return tally.around(script(task, seed))

            policy: Policy | Script = tallied
        else:
            policy = tally.around(inner)
        suite, bench = self._bench.suite, self._bench
        return AttemptSetup(
            policy,
            bench.pool,
            suite.graders,
            self._participant.harness,
            ready.renderer,
            self._limits,
            adapt=suite.adapt,
            search=self._search,
            agent=ready.agent,
        )

    def _pay(self, name: str, usage: Usage) -> None:
        if self._price is None:
            return
        dollars = dollars_of_usage(self._price, usage)
        if dollars is None and self._bench.budget.cap is None:
            return
        if dollars is None and self._dearest_turn is None:
            raise UsageMissing(
                f"{self._participant.name} answered a turn without saying what it cost: --max-cost can't be kept; leave it out, or "
                "have the endpoint report usage"
            )
        # A turn without usage among others that have it (a broken call, say) is taken to have cost as much as the dearest.
        dollars = self._dearest_turn or 0.0 if dollars is None else dollars
        self._dearest_turn = max(dollars, self._dearest_turn or 0.0)
        self._bench.budget.pay(self._participant.key, name, dollars)

    def _append(self, tally: ParticipantUsage, job: CampaignJob[AttemptJob], made: Attempt) -> Outcome:
        task = job.work.task
        outcome = self._outcome(made, task, tally.take(f"{job.key}.{made.tries}"))
        path = self._bench.folder.session(self._participant.key, task.id, outcome.attempt)
        write_attempt_files(path, made, task, {"policy": self._participant.name, "effort": self._participant.effort, "pass": outcome.attempt})
        self._file.add(outcome)
        return outcome

    def on_finish(self, job: CampaignJob[Any], record: Outcome) -> None:
        self.kept.append(record)
        self.progress.made += 1
        self.progress.missing -= 1
        self._tell()

    def _outcome(self, made: Attempt, task: Task, charge: Charge) -> Outcome:
        shape = self._bench.shape(task)
        is_complete = charge.is_complete
        return replace(
            read_outcome(made, task),
            effort=self._participant.effort,
            input_tokens=charge.input_tokens if is_complete else None,
            cached_tokens=charge.cached_tokens if is_complete else None,
            cache_write_tokens=charge.cache_write_tokens if is_complete else None,
            output_tokens=charge.output_tokens if is_complete else None,
            core_seconds=round(charge.core_seconds, 4) if charge.core_seconds else None,
            files=shape.files,
            lines=shape.lines,
            style=str(task.metadata.get("style", "")),
        )

    def on_failure(self, job: CampaignJob[Any], fault: InfraFault) -> None:
        task_id, _, number = job.key.rpartition("#")
        kind = type(fault.__cause__).__name__ if fault.__cause__ else type(fault).__name__
        row = {
            "policy": self._participant.key,
            "task": task_id,
            "attempt": int(number),
            "class": kind,
            "message": str(fault),
        }
        append_line(self._bench.folder.faults, json.dumps(row))
        self.progress.faults[job.key] = str(fault)
        self._tell()

    def on_stop(self, reason: str) -> None:
        self.progress.stopped = reason

    def line(self) -> str:
        """How it ended, for the person who watches."""
        summary = f"{len(self.kept)} of {self._whole} attempts, mean score {self._mean:.1f}%"
        faults = f", {len(self.progress.faults)} met faults of ours and are not scored" if self.progress.faults else ""
        return summary + faults + (f"; stopped: {self.progress.stopped}" if self.progress.stopped else "")

    @property
    def _mean(self) -> float:
        return 100 * sum(o.score for o in self.kept) / len(self.kept) if self.kept else 0.0

    def _tell(self) -> None:
        """A row of the live table."""
        facts = {"mean": round(self._mean, 1)}
        if self._price is not None:
            facts["dollars"] = round(self._bench.budget.spent, 4)
        if self.progress.faults:
            facts["faults"] = len(self.progress.faults)
        self._bench.log.progress(self._participant.key, len(self.kept), self._whole, **facts)
