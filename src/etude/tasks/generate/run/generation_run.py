"""Runs a generation request: installs projects and builds candidates, a few at a time, in the order of the lane
scheduler.

One worker installs while projects are left, the others build candidates of installed projects; a worker without a lane
helps to install. Guarantees:

- A decided candidate is never tried again, because every decision is in the journal.
- A kill costs only the candidates in flight.
- An infrastructure error (InfraError) decides nothing; the next run tries again.
- A generator that raises is reported and leaves the other lanes alone.
"""

from __future__ import annotations

import asyncio
import time
import traceback
from collections import Counter
from collections.abc import Iterator

from etude.sandbox.errors import InfraError, Unsupported, UserError
from etude.tasks.environment.environment import environment_of
from etude.tasks.errors import TaskError
from etude.tasks.fail_to_pass import CandidateRejected
from etude.tasks.generate.generator import Generator, InstalledProject, ProofContext
from etude.tasks.generate.protocols import (
    EnvironmentProvider,
    FinalizeFunction,
    GenerationProgress,
    GenerationRequest,
    ProgressCallback,
    ProjectDiscarded,
    TaskSink,
)
from etude.tasks.generate.protocols import InstallFunction as Installer
from etude.tasks.generate.run.journal import CandidateDecision, GenerationJournal, InstallDecision
from etude.tasks.generate.run.lanes import Lane, LaneScheduler
from etude.tasks.task import Task
from etude.tasks.validation.suite_build import Candidate

MAX_FAULTS_IN_A_ROW = 8  # infrastructure errors; more of them mean that the machine is broken, not a candidate
NOT_INSTALLED = "not installed in this run"
MAX_GENERATOR_ERRORS = 3  # errors of a generator at one project, after which its lane closes


def lane_of(generator: Generator, project: str) -> Lane:
    return Lane(generator.category, project, generator.name, getattr(generator, "large", False))


class GenerationAborted(Exception):
    """Too many infrastructure errors in a row. The same command resumes the run."""


class GenerationRun:
    """One run on top of the decisions of earlier runs. `run` ends when enough tasks are taken, nothing is left, or time
    is up."""

    def __init__(
        self,
        request: GenerationRequest,
        install: Installer,
        finalize: FinalizeFunction,
        sink: TaskSink,
        journal: GenerationJournal,
        context: ProofContext,
        on_progress: ProgressCallback = lambda progress: None,
    ) -> None:
        self.request, self.install, self.finalize, self.sink = request, install, finalize, sink
        self.journal, self.context, self.on_progress = journal, context, on_progress
        self.lanes = LaneScheduler(request.per_category, request.count)
        self.faults: list[str] = []
        self._installed: dict[str, InstalledProject] = {}
        self._recipes: dict[str, str] = {}
        self._waiting = [name for name in request.projects if not self._is_discarded(name)]
        self._lists: dict[Lane, Iterator[Candidate]] = {}
        self._listing: dict[Lane, asyncio.Lock] = {}
        self._seen = set(journal.candidates)
        self._generator_errors: Counter[Lane] = Counter()
        self._in_a_row = 0
        self._installing = 0
        self._changed = asyncio.Condition()
        for row in journal.candidates.values():
            if row.generator in request.generators and row.project in request.projects:
                lane = lane_of(request.generators[row.generator], row.project)
                self.lanes.record(lane, taken=row.taken, seconds=row.seconds)
                self._generator_errors[lane] += row.broken
                self.lanes.close(lane, NOT_INSTALLED)

    async def run(self) -> None:
        """Raises GenerationAborted; earlier decisions stay."""
        self._began = time.monotonic()
        workers = [asyncio.create_task(self._work(number == 0)) for number in range(max(1, self.request.jobs))]
        try:
            await asyncio.gather(*workers)
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)

    @property
    def is_out_of_time(self) -> bool:
        budget = self.request.budget_s
        return budget is not None and time.monotonic() - self._began >= budget

    async def _work(self, installs_first: bool) -> None:
        while not self.is_out_of_time and not self._has_enough():
            if installs_first and self._waiting:
                await self._install_next()
            elif (lane := self.lanes.next()) is not None:
                await self._take_turn(lane)
            elif self._waiting:
                await self._install_next()
            elif not await self._wait_for_work():
                return

    async def _wait_for_work(self) -> bool:
        """Waits until another worker finishes; False if no further work can appear."""
        async with self._changed:
            if not self._installing and not any(s.in_flight for s in self.lanes.lanes.values()):
                self._changed.notify_all()
                return False
            await self._changed.wait()
        return True

    def _has_enough(self) -> bool:
        return self.request.count is not None and self.lanes.taken >= self.request.count

    def _is_discarded(self, name: str) -> bool:
        row = self.journal.installs.get(name)
        return row is not None and bool(row.reason)

    async def _install_next(self) -> None:
        name = self._waiting.pop(0)
        self._installing += 1
        began = time.monotonic()
        try:
            built = await self.install(name)
        except ProjectDiscarded as error:
            reason = " ".join(str(error).split()) or "no reason given"
            seconds, dollars = round(time.monotonic() - began, 2), error.spent.get("dollars") or 0.0
            self.journal.record(InstallDecision(name, error.builder, reason, seconds, dollars))
            self._report_progress(f"{name}: discarded: {reason}")
        except InfraError as error:
            self._record_infra_error(f"{name}: {error}")
        except (UserError, ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
            # A repository may hold anything: an unexpected error discards this project, not the run.
            place = traceback.extract_tb(error.__traceback__)[-1]
            reason = (
                f"the install broke: {type(error).__name__}: {str(error)[:200]} ({place.name}, line {place.lineno})"
            )
            self.faults.append(f"{name}: {reason}")
            self.journal.record(InstallDecision(name, "", reason, round(time.monotonic() - began, 2), 0.0))
            self._report_progress(f"{name}: discarded: {reason}")
        else:
            self._installed[name], self._recipes[name] = built.installed, built.recipe
            if name not in self.journal.installs:
                seconds = round(time.monotonic() - began, 2)
                self.journal.record(InstallDecision(name, built.builder, "", seconds, built.dollars))
            self._open_lanes(name, built.installed)
            self._report_progress(f"{name}: installed")
        finally:
            self._installing -= 1
            await self._notify()

    def _open_lanes(self, name: str, project: InstalledProject) -> None:
        lanes = [
            lane_of(generator, name)
            for generator in self.request.generators.values()
            if project.environment.language in generator.languages
        ]
        for lane in lanes:
            if self.lanes.closed.get(lane) == NOT_INSTALLED:
                del self.lanes.closed[lane]
            if self._generator_errors[lane] >= MAX_GENERATOR_ERRORS:
                self.lanes.close(lane, "the generator breaks here")
        self.lanes.open(lanes)

    async def _take_turn(self, lane: Lane) -> None:
        began = time.monotonic()
        try:
            candidate = await self._next_candidate(lane)
            if candidate is None:
                self.lanes.release(lane)
                self.lanes.close(lane, "no candidate is left")
                return
            decision = await self._decide(lane, candidate, began)
            if decision is None:
                self.lanes.release(lane)
                return
            self.journal.record(decision)
            self.lanes.settle(lane, taken=decision.taken, seconds=decision.seconds)
            self._report_progress(
                f"{candidate.id}: {'taken' if decision.taken else ' '.join(decision.reason.split())[:160]}"
            )
        finally:
            await self._notify()

    async def _next_candidate(self, lane: Lane) -> Candidate | None:
        """Lists in a thread, because listing parses whole projects. One at a time, because iterators are not
        thread-safe."""
        lock = self._listing.setdefault(lane, asyncio.Lock())
        async with lock:
            try:
                if lane not in self._lists:
                    generator = self.request.generators[lane.generator]
                    project = self._installed[lane.project]
                    self._lists[lane] = iter(generator.candidates(project, self.context, self.request.seed))
                while (found := await asyncio.to_thread(next, self._lists[lane], None)) is not None:
                    if found.id not in self._seen:
                        self._seen.add(found.id)
                        return found
            except Exception as error:  # noqa: BLE001 - any error of a generator is reported and closes its lane alone
                self._record_generator_error(lane, f"{lane.project}/{lane.generator} (listing)", error)
                self.lanes.close(lane, "the generator breaks here")
        return None

    async def _decide(self, lane: Lane, candidate: Candidate, began: float) -> CandidateDecision | None:
        """None where an infrastructure error decided nothing."""
        reason, broken, dollars = "", False, 0.0
        try:
            task = await candidate.build()
            project, recipe = self._project_for(lane, task)
            task = await self.finalize(task, project)
            await asyncio.to_thread(self.sink.add, task, project, recipe)
            dollars = float(task.metadata.get("cost", {}).get("dollars", 0.0))
            self._in_a_row = 0
        except (CandidateRejected, Unsupported, UserError, TaskError) as error:
            reason = str(error) or type(error).__name__
            self._in_a_row = 0
        except InfraError as error:
            self._record_infra_error(f"{candidate.id}: {error}")
            return None
        except Exception as error:  # noqa: BLE001 - as in listing
            reason, broken = self._record_generator_error(lane, candidate.id, error), True
        seconds = round(time.monotonic() - began, 3)
        return CandidateDecision(
            candidate.id, lane.category, lane.project, lane.generator, reason, seconds, dollars, broken
        )

    def _project_for(self, lane: Lane, task: Task) -> tuple[InstalledProject, str]:
        """The installed project that the task runs in, with its recipe: the lane's, or one that the generator
        installed."""
        generator, environment = self.request.generators[lane.generator], environment_of(task.metadata)
        if isinstance(generator, EnvironmentProvider) and environment is not None:
            if (built := generator.installed_as(environment.name)) is not None:
                return built.installed, built.recipe
        return self._installed[lane.project], self._recipes.get(lane.project, "")

    def _record_generator_error(self, lane: Lane, what: str, error: Exception) -> str:
        place = traceback.extract_tb(error.__traceback__)[-1]
        reason = f"the generator broke: {type(error).__name__}: {error} ({place.name}, line {place.lineno})"
        self.faults.append(f"{what}: {reason}")
        self._generator_errors[lane] += 1
        if self._generator_errors[lane] >= MAX_GENERATOR_ERRORS:
            self.lanes.close(lane, "the generator breaks here")
        return reason

    def _record_infra_error(self, message: str) -> None:
        self.faults.append(message)
        self._in_a_row += 1
        self._report_progress(f"infrastructure error: {message}")
        if self._in_a_row >= MAX_FAULTS_IN_A_ROW:
            raise GenerationAborted(
                f"{MAX_FAULTS_IN_A_ROW} infrastructure errors in a row, the last: {message}. Run the same command again"
            )

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    def _report_progress(self, last: str) -> None:
        rows = self.journal.candidates.values()
        installs = self.journal.installs.values()
        by_category = Counter(row.category for row in rows if row.taken)
        self.on_progress(
            GenerationProgress(
                sum(by_category.values()),
                len(rows),
                sum(not row.reason for row in installs),
                sum(bool(row.reason) for row in installs),
                len(self.request.projects),
                self.request.count,
                last,
                dict(by_category),
            )
        )
