"""The making itself: installs and candidates, a few at a time, whose turn `Turns` says; each is written down when it is decided.

One worker installs while projects are left to install, the others generate on what is installed already; a worker without a lane helps
installing. Promises: what was decided is never tried again; a kill costs what was in flight; a fault of ours (InfraError) decides nothing and
is tried again by the next run; a generator that breaks is told and leaves the other lanes alone.
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
from etude.tasks.generate.generator import Bench, Generator, Installed
from etude.tasks.generate.making.decisions import Decision, Decisions, Install
from etude.tasks.generate.making.turns import Lane, Turns
from etude.tasks.generate.order import Discarded, Finish, Installs, Order, Progress, Shelf, Told
from etude.tasks.generate.order import Install as Installer
from etude.tasks.proof import LeftOut
from etude.tasks.task import Task
from etude.tasks.validation.workshop import Candidate

FAULTS = 8  # of ours in a row, after which the machine rather than a candidate is the trouble
ELSEWHERE = "not installed in this run"
BREAKS = 3  # of a generator at one project, after which it is left alone there


def lane_of(generator: Generator, project: str) -> Lane:
    return Lane(generator.category, project, generator.name, getattr(generator, "large", False))


class MakingFault(Exception):
    """Faults of ours one after the other: the making stops, and the same command goes on."""


class Making:
    """One run of a making over what earlier runs decided. `run` ends when enough is taken, nothing is left, or time is up."""

    def __init__(
        self,
        order: Order,
        install: Installer,
        finish: Finish,
        shelf: Shelf,
        decisions: Decisions,
        bench: Bench,
        progress: Progress = lambda told: None,
    ) -> None:
        self.order, self.install, self.finish, self.shelf = order, install, finish, shelf
        self.decisions, self.bench, self.progress = decisions, bench, progress
        self.turns = Turns(order.per_category, order.count)
        self.faults: list[str] = []
        self._installed: dict[str, Installed] = {}
        self._recipes: dict[str, str] = {}
        self._waiting = [name for name in order.projects if not self._discarded(name)]
        self._lists: dict[Lane, Iterator[Candidate]] = {}
        self._listing: dict[Lane, asyncio.Lock] = {}
        self._seen = set(decisions.candidates)
        self._breaks: Counter[Lane] = Counter()
        self._in_a_row = 0
        self._installing = 0
        self._news = asyncio.Condition()
        for row in decisions.candidates.values():
            if row.generator in order.generators and row.project in order.projects:
                lane = lane_of(order.generators[row.generator], row.project)
                self.turns.count_in(lane, taken=row.taken, seconds=row.seconds)
                self._breaks[lane] += row.broken
                self.turns.close(lane, ELSEWHERE)

    async def run(self) -> None:
        """Raises MakingFault; what was decided by then stays."""
        self._began = time.monotonic()
        workers = [asyncio.create_task(self._work(number == 0)) for number in range(max(1, self.order.jobs))]
        try:
            await asyncio.gather(*workers)
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)

    @property
    def late(self) -> bool:
        budget = self.order.budget_s
        return budget is not None and time.monotonic() - self._began >= budget

    async def _work(self, installs_first: bool) -> None:
        while not self.late and not self._enough():
            if installs_first and self._waiting:
                await self._install_next()
            elif (lane := self.turns.next()) is not None:
                await self._take_turn(lane)
            elif self._waiting:
                await self._install_next()
            elif not await self._waited():
                return

    async def _waited(self) -> bool:
        """Nothing to do now; False if nothing can come any more."""
        async with self._news:
            if not self._installing and not any(s.flying for s in self.turns.lanes.values()):
                self._news.notify_all()
                return False
            await self._news.wait()
        return True

    def _enough(self) -> bool:
        return self.order.count is not None and self.turns.taken >= self.order.count

    def _discarded(self, name: str) -> bool:
        row = self.decisions.installs.get(name)
        return row is not None and bool(row.reason)

    async def _install_next(self) -> None:
        name = self._waiting.pop(0)
        self._installing += 1
        began = time.monotonic()
        try:
            built = await self.install(name)
        except Discarded as error:
            reason = " ".join(str(error).split()) or "no reason given"
            seconds, dollars = round(time.monotonic() - began, 2), error.spent.get("dollars") or 0.0
            self.decisions.decide(Install(name, error.builder, reason, seconds, dollars))
            self._tell(f"{name}: discarded: {reason}")
        except InfraError as error:
            self._fault(f"{name}: {error}")
        except (UserError, ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
            # A repository may hold anything: what no rule expected ends this project, not the making.
            place = traceback.extract_tb(error.__traceback__)[-1]
            reason = (
                f"the install broke: {type(error).__name__}: {str(error)[:200]} ({place.name}, line {place.lineno})"
            )
            self.faults.append(f"{name}: {reason}")
            self.decisions.decide(Install(name, "", reason, round(time.monotonic() - began, 2), 0.0))
            self._tell(f"{name}: discarded: {reason}")
        else:
            self._installed[name], self._recipes[name] = built.installed, built.recipe
            if name not in self.decisions.installs:
                seconds = round(time.monotonic() - began, 2)
                self.decisions.decide(Install(name, built.builder, "", seconds, built.dollars))
            self._open(name, built.installed)
            self._tell(f"{name}: installed")
        finally:
            self._installing -= 1
            await self._announce()

    def _open(self, name: str, project: Installed) -> None:
        lanes = [
            lane_of(generator, name)
            for generator in self.order.generators.values()
            if project.environment.language in generator.languages
        ]
        for lane in lanes:
            if self.turns.closed.get(lane) == ELSEWHERE:
                del self.turns.closed[lane]
            if self._breaks[lane] >= BREAKS:
                self.turns.close(lane, "the generator breaks here")
        self.turns.open(lanes)

    async def _take_turn(self, lane: Lane) -> None:
        began = time.monotonic()
        try:
            candidate = await self._next_candidate(lane)
            if candidate is None:
                self.turns.put_back(lane)
                self.turns.close(lane, "no candidate is left")
                return
            decision = await self._decided(lane, candidate, began)
            if decision is None:
                self.turns.put_back(lane)
                return
            self.decisions.decide(decision)
            self.turns.came(lane, taken=decision.taken, seconds=decision.seconds)
            self._tell(f"{candidate.id}: {'taken' if decision.taken else ' '.join(decision.reason.split())[:160]}")
        finally:
            await self._announce()

    async def _next_candidate(self, lane: Lane) -> Candidate | None:
        """Listing parses whole projects, so it goes in a thread; one at a time, as iterators want it."""
        lock = self._listing.setdefault(lane, asyncio.Lock())
        async with lock:
            try:
                if lane not in self._lists:
                    generator = self.order.generators[lane.generator]
                    project = self._installed[lane.project]
                    self._lists[lane] = iter(generator.candidates(project, self.bench, self.order.seed))
                while (found := await asyncio.to_thread(next, self._lists[lane], None)) is not None:
                    if found.id not in self._seen:
                        self._seen.add(found.id)
                        return found
            except Exception as error:  # noqa: BLE001 - whatever a generator meets is told and closes its lane alone
                self._break(lane, f"{lane.project}/{lane.generator} (listing)", error)
                self.turns.close(lane, "the generator breaks here")
        return None

    async def _decided(self, lane: Lane, candidate: Candidate, began: float) -> Decision | None:
        """None where a fault of ours decided nothing."""
        reason, broken, dollars = "", False, 0.0
        try:
            task = await candidate.build()
            project, recipe = self._home(lane, task)
            task = await self.finish(task, project)
            await asyncio.to_thread(self.shelf.add, task, project, recipe)
            dollars = float(task.metadata.get("cost", {}).get("dollars", 0.0))
            self._in_a_row = 0
        except (LeftOut, Unsupported, UserError, TaskError) as error:
            reason = str(error) or type(error).__name__
            self._in_a_row = 0
        except InfraError as error:
            self._fault(f"{candidate.id}: {error}")
            return None
        except Exception as error:  # noqa: BLE001 - as in listing
            reason, broken = self._break(lane, candidate.id, error), True
        seconds = round(time.monotonic() - began, 3)
        return Decision(candidate.id, lane.category, lane.project, lane.generator, reason, seconds, dollars, broken)

    def _home(self, lane: Lane, task: Task) -> tuple[Installed, str]:
        """The project as it is installed where the task runs, with its recipe: the lane's, or one that the generator installed."""
        generator, environment = self.order.generators[lane.generator], environment_of(task.metadata)
        if isinstance(generator, Installs) and environment is not None:
            if (built := generator.installed_as(environment.name)) is not None:
                return built.installed, built.recipe
        return self._installed[lane.project], self._recipes.get(lane.project, "")

    def _break(self, lane: Lane, what: str, error: Exception) -> str:
        place = traceback.extract_tb(error.__traceback__)[-1]
        reason = f"the generator broke: {type(error).__name__}: {error} ({place.name}, line {place.lineno})"
        self.faults.append(f"{what}: {reason}")
        self._breaks[lane] += 1
        if self._breaks[lane] >= BREAKS:
            self.turns.close(lane, "the generator breaks here")
        return reason

    def _fault(self, told: str) -> None:
        self.faults.append(told)
        self._in_a_row += 1
        self._tell(f"a fault of ours: {told}")
        if self._in_a_row >= FAULTS:
            raise MakingFault(
                f"{FAULTS} faults of ours one after the other, the last: {told}. Run the same command again"
            )

    async def _announce(self) -> None:
        async with self._news:
            self._news.notify_all()

    def _tell(self, last: str) -> None:
        rows = self.decisions.candidates.values()
        installs = self.decisions.installs.values()
        by_category = Counter(row.category for row in rows if row.taken)
        self.progress(
            Told(
                sum(by_category.values()),
                len(rows),
                sum(not row.reason for row in installs),
                sum(bool(row.reason) for row in installs),
                len(self.order.projects),
                self.order.count,
                last,
                dict(by_category),
            )
        )
