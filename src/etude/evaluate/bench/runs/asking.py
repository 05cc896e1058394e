"""One entrant at all tasks, pass after pass: bounded, resumable, within the budget; infra faults told apart, never scored.

Promises. What is written down is never asked again, and an attempt is one appended line, so a kill at any moment loses at most
the attempts in flight and counts none twice. Passes go over all tasks before the next begins, so a run that stops early leaves
whole passes. A pass that faults of ours ate is missing, is told, and is asked again by the next run (promise 8).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from etude.evaluate.bench.contest import read_outcome
from etude.evaluate.bench.outcome import Outcome, OutcomeFile
from etude.evaluate.bench.runs.cost import UsageMissing, dollars_of_usage
from etude.evaluate.bench.runs.entrant import Entrant, Seat
from etude.evaluate.bench.runs.folder import RunFolder, append_line
from etude.evaluate.bench.runs.kept import keep
from etude.evaluate.bench.runs.purse import BudgetSpent, Purse, Word
from etude.evaluate.bench.runs.tally import Charge, ParticipantUsage
from etude.evaluate.bench.prices import Price
from etude.evaluate.bench.suites.shape import TaskSize, shape_of
from etude.evaluate.bench.suites.suite import Suite
from etude.core.events.log import EventLog
from etude.agent.policy.protocol import Policy
from etude.rollout.attempt import Attempt, Script, AttemptSetup, attempt
from etude.rollout.code_search import CodeSearch
from etude.rollout.retry import InfraFault
from etude.rollout.settings import AttemptSettings
from etude.sandbox.protocol import Machines
from etude.tasks.task import Task
from etude.core.trace.completion import Usage


@dataclass(frozen=True)
class Bench:
    """What all entrants share. Tasks are in the suite's order: a task's place and the pass make its seed, the same for all."""

    suite: Suite
    tasks: Sequence[Task]
    folder: RunFolder
    pool: Machines
    log: EventLog
    purse: Purse
    passes: int
    concurrency: int
    seed: int
    _shapes: dict[str, TaskSize] = field(default_factory=dict)

    def shape(self, task: Task) -> TaskSize:
        """How large its reference change is; found once for all entrants."""
        if task.id not in self._shapes:
            self._shapes[task.id] = shape_of(task)
        return self._shapes[task.id]

    def seed_of(self, place: int, number: int) -> int:
        """With equal weights two policies answer alike, which pairs the comparison further; a session's turns have seeds between."""
        return self.seed + 1009 * place + 1_000_003 * number


@dataclass
class ParticipantProgress:
    """What came of it: passes made now and missing still, faults by attempt, and why it ended early, if it did."""

    key: str
    made: int = 0
    missing: int = 0
    faults: dict[str, str] = field(default_factory=dict)
    stopped: str = ""


class Asking:
    """One entrant's turn. `run` raises EndpointGone where the policy's server is lost; what was made by then is kept."""

    def __init__(
        self,
        bench: Bench,
        entrant: Entrant,
        limits: AttemptSettings,
        price: Price | None = None,
        search: CodeSearch | None = None,
    ) -> None:
        self._bench, self._entrant, self._limits, self._price, self._search = bench, entrant, limits, price, search
        self._file = OutcomeFile(bench.folder.outcomes(entrant.key))
        self._dearest_turn: float | None = None
        self._ended = asyncio.Condition()
        wanted = {(task.id, number) for task in bench.tasks for number in range(bench.passes)}
        self.kept = [o for key, o in self._file.outcomes.items() if key in wanted]
        self._whole = len(wanted)
        self.asked = ParticipantProgress(entrant.key, missing=len(wanted) - len(self.kept))

    async def run(self) -> ParticipantProgress:
        """Ask what is missing."""
        self._tell()
        if not self.asked.missing:
            return self.asked
        async with self._entrant.open() as seat:
            tally = ParticipantUsage(self._entrant.key, self._bench.folder.usage, seat.engine, self._pay)
            setup = self._setup(seat, tally)
            jobs = self._jobs()
            count = min(self._bench.concurrency, self.asked.missing)
            workers = [asyncio.create_task(self._work(jobs, setup, tally)) for _ in range(count)]
            try:
                await asyncio.gather(*workers)
            except BudgetSpent:
                self.asked.stopped = self._bench.purse.why(self._entrant.key)
            finally:
                for worker in workers:
                    worker.cancel()
                await asyncio.gather(*workers, return_exceptions=True)
        self._tell()
        return self.asked

    def _jobs(self) -> Iterator[tuple[Task, int, int]]:
        """What is missing: task, its place, the pass."""
        for number in range(self._bench.passes):
            for place, task in enumerate(self._bench.tasks):
                if (task.id, number) not in self._file.outcomes:
                    yield task, place, number

    def _setup(self, seat: Seat, tally: ParticipantUsage) -> AttemptSetup:
        inner = seat.policy
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
            self._entrant.harness,
            seat.renderer,
            self._limits,
            adapt=suite.adapt,
            search=self._search,
            agent=seat.agent,
        )

    async def _work(self, jobs: Iterator[tuple[Task, int, int]], setup: AttemptSetup, tally: ParticipantUsage) -> None:
        for task, place, number in jobs:
            name = f"{task.id}#{number}"
            if not await self._admitted(name):
                return
            try:
                made = await attempt(task, setup, name=name, seed=self._bench.seed_of(place, number))
            except InfraFault as fault:
                self._lose(name, fault)
            else:
                self._take(made, task, tally.take(f"{name}.{made.tries}"), setup)
            finally:
                async with self._ended:
                    self._bench.purse.end(self._entrant.key, name)
                    self._ended.notify_all()

    async def _admitted(self, name: str) -> bool:
        """Waits until the budget says go; False if it says stop."""
        purse, key = self._bench.purse, self._entrant.key
        if self._price is None:
            return True
        async with self._ended:
            await self._ended.wait_for(lambda: purse.word(key) is not Word.wait)
            if purse.word(key) is Word.go:
                purse.start(key, name)
                return True
        self.asked.stopped = purse.why(key)
        return False

    def _pay(self, name: str, usage: Usage) -> None:
        if self._price is None:
            return
        dollars = dollars_of_usage(self._price, usage)
        if dollars is None and self._bench.purse.cap is None:
            return
        if dollars is None and self._dearest_turn is None:
            raise UsageMissing(
                f"{self._entrant.name} answered a turn without saying what it cost: --max-cost can't be kept; leave it out, or "
                "have the endpoint report usage"
            )
        # A turn without usage among others that have it (a broken call, say) is taken to have cost as much as the dearest.
        dollars = self._dearest_turn or 0.0 if dollars is None else dollars
        self._dearest_turn = max(dollars, self._dearest_turn or 0.0)
        self._bench.purse.pay(self._entrant.key, name, dollars)

    def _take(self, made: Attempt, task: Task, charge: Charge, setup: AttemptSetup) -> None:
        outcome = self._outcome(made, task, charge)
        path = self._bench.folder.session(self._entrant.key, task.id, outcome.attempt)
        keep(path, made, task, {"policy": self._entrant.name, "effort": self._entrant.effort, "pass": outcome.attempt})
        self._file.add(outcome)
        self.kept.append(outcome)
        self.asked.made += 1
        self.asked.missing -= 1
        self._tell()

    def _outcome(self, made: Attempt, task: Task, charge: Charge) -> Outcome:
        shape = self._bench.shape(task)
        told = charge.told
        return replace(
            read_outcome(made, task),
            effort=self._entrant.effort,
            input_tokens=charge.input_tokens if told else None,
            cached_tokens=charge.cached_tokens if told else None,
            cache_write_tokens=charge.cache_write_tokens if told else None,
            output_tokens=charge.output_tokens if told else None,
            core_seconds=round(charge.core_seconds, 4) if charge.core_seconds else None,
            files=shape.files,
            lines=shape.lines,
            style=str(task.metadata.get("style", "")),
        )

    def _lose(self, name: str, fault: InfraFault) -> None:
        task_id, _, number = name.rpartition("#")
        kind = type(fault.__cause__).__name__ if fault.__cause__ else type(fault).__name__
        row = {
            "policy": self._entrant.key,
            "task": task_id,
            "attempt": int(number),
            "class": kind,
            "message": str(fault),
        }
        append_line(self._bench.folder.faults, json.dumps(row))
        self.asked.faults[name] = str(fault)
        self._tell()

    def line(self) -> str:
        """How it ended, for the person who watches."""
        told = f"{len(self.kept)} of {self._whole} attempts, mean score {self._mean:.1f}%"
        faults = f", {len(self.asked.faults)} met faults of ours and are not scored" if self.asked.faults else ""
        return told + faults + (f"; stopped: {self.asked.stopped}" if self.asked.stopped else "")

    @property
    def _mean(self) -> float:
        return 100 * sum(o.score for o in self.kept) / len(self.kept) if self.kept else 0.0

    def _tell(self) -> None:
        """A row of the live table."""
        facts = {"mean": round(self._mean, 1)}
        if self._price is not None:
            facts["dollars"] = round(self._bench.purse.spent, 4)
        if self.asked.faults:
            facts["faults"] = len(self.asked.faults)
        self._bench.log.progress(self._entrant.key, len(self.kept), self._whole, **facts)
