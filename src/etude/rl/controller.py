"""The controller: one asyncio loop that keeps the slots busy and the trainer fed. The decisions are the reconciler's.

Each time something changed (a rollout came in, a step was trained, the engine serves new weights):
    training     if the trainer is free, `reconciler.batch` goes into the ledger, then to the trainer
    serving      the weights are copied, and go to the store and the engines while the trainer is at the next batch, if there is one; at most
                 one version is on its way, and what is not served yet admits nothing. Rollouts stay in flight all the while
    generation   what `reconciler.start` hands out is launched; a finished group goes to disk, then into the ledger
The synchronous baseline is the same loop with a window of staleness 0: no group can start until its weights are served.
Clock and I/O come from outside, so tests run this very file under a simulated clock with faults and kills (promises 5, 6, 8).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Protocol

from etude.core.trace.segment import Rollout
from etude.rl.groups import RolloutGroup
from etude.rl.ledger import RlLedger
from etude.rl.reconciler import Reconciler
from etude.rl.rollout_state import RolloutSlot
from etude.rl.store import GroupStore
from etude.rl.watchdog import PATIENCE_S, TrainerActivity, Watchdog
from etude.rollout.retry import InfraFault


@dataclass
class StepResult:
    """What one training step came to. `values` are figures for the log; `digest` names the weights after it.

    `components` and `advantages` are the rollouts' reward parts and advantages, in the order of the groups and their slots.
    """

    step: int
    digest: str
    components: list[dict[str, float]] = field(default_factory=list)
    advantages: list[float] = field(default_factory=list)
    values: dict[str, float] = field(default_factory=dict)
    measured: list[dict[str, float]] = field(default_factory=list)  # the parts before any weight
    weights: dict[str, float] = field(default_factory=dict)  # of the components in this step


class LearnerClient(Protocol):
    """The trainer and the way of its weights to the engine, as the controller sees them."""

    async def restore(self, step: int) -> None:
        """Take the state of the checkpoint that holds the first `step` steps; 0 is the initial policy."""
        ...

    async def train(self, step: int, groups: list[int]) -> StepResult:
        """Train the stored groups as step `step`. The same state and groups come to the same weights."""
        ...

    async def publish(self, version: int) -> None:
        """Copy the weights, to be published as `version`; the next step may begin then."""
        ...

    async def sync(self, version: int) -> dict[str, float]:
        """Bring what `publish` copied into the store and have the engines at home serve it; returns figures once they acknowledged."""
        ...

    @property
    def admits(self) -> int:
        """The version at which groups are admitted now: every engine that is asked serves it, or a later one (`regions.py`)."""
        ...

    def listen(self, heard: Callable[[], None]) -> None:
        """`heard` is called whenever `admits` is another version than before."""
        ...

    def wants_checkpoint(self) -> bool:
        """Whether the trainer waits for a checkpoint, whatever `save_every` says."""
        ...

    async def save(self, step: int) -> None:
        """Write a checkpoint that holds the first `step` steps, with the optimizer."""
        ...


Attempt = Callable[[RolloutSlot], Awaitable[Rollout]]


class StepObserver(Protocol):
    """Receives what the controller does with groups and steps."""

    def on_group(self, group: RolloutGroup[Rollout]) -> None:
        """A group is finished, and not stored yet. What this raises ends the run."""
        ...

    def on_set_aside(self, group: RolloutGroup[Rollout]) -> None:
        """A finished group is not to be trained."""
        ...

    async def on_step(self, step: StepResult, groups: list[RolloutGroup[Rollout]]) -> None:
        """A step is trained and its version served."""
        ...

    async def on_replay(self, step: StepResult, groups: list[RolloutGroup[Rollout]]) -> None:
        """A step is trained again after a kill, to the same weights; no engine serves yet."""
        ...

    def note(self, text: str) -> None:
        """A task that can't be attempted, or what the run waits for when that takes long."""
        ...


class Controller:
    """Runs the schedule to its end."""

    def __init__(
        self,
        reconciler: Reconciler[Rollout],
        attempt: Attempt,
        learner: LearnerClient,
        store: GroupStore,
        ledger: RlLedger,
        *,
        save_every: int,
        observer: StepObserver,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.reconciler = reconciler
        self.attempt = attempt
        self.learner = learner
        self.store = store
        self.ledger = ledger
        self.save_every = save_every
        self.observer = observer
        self.clock = clock
        self._doing = ""
        self._since_s = 0.0
        self._aside = 0  # groups that are not trained, since the last batch
        self._changed = asyncio.Event()
        self._rollouts: dict[asyncio.Task[None], RolloutSlot] = {}
        self._training: asyncio.Task[None] | None = None
        self._serving: asyncio.Task[None] | None = None
        self._idle_from = 0.0
        self._failure: BaseException | None = None

    async def run(self, *, report_waits: bool = False) -> None:
        """Until every group of the schedule is trained; on failure or cancellation no rollout is left running. With `report_waits` the
        observer gets a note of each long wait."""
        self._idle_from = self._since_s = self.clock()
        self.learner.listen(self._changed.set)
        watch = [asyncio.create_task(self._report_waits())] if report_waits else []
        try:
            while True:
                self._changed.clear()
                if self._failure is not None:
                    raise self._failure
                self._train_next()
                self._launch()
                if self._training is None and self._serving is None and self.reconciler.done:
                    return
                await self._changed.wait()
        finally:
            tasks = [*watch, *self._rollouts, *(task for task in (self._training, self._serving) if task)]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _launch(self) -> None:
        self.reconciler.version = self.learner.admits
        for slot in self.reconciler.start(self.clock()):
            self._rollouts[self._spawn(self._roll_out(slot))] = slot
        for group in self.reconciler.take_admitted():
            self.ledger.note("admitted", group=group.index, task=group.task_id, version=group.version)

    async def _roll_out(self, slot: RolloutSlot) -> None:
        try:
            rollout = await self.attempt(slot)
        except InfraFault as fault:
            if slot.group not in self.reconciler.groups:
                return  # the group was given up meanwhile, and its rollouts are no longer counted
            self.ledger.note("fault", group=slot.group, member=slot.member, attempt=slot.attempt, reason=str(fault))
            group = self.reconciler.fail(slot, str(fault), self.clock())
            if group is not None:
                self._give_up(group, str(fault))
            return
        if slot.group not in self.reconciler.groups:
            return
        version = self.reconciler.groups[slot.group].version
        group = self.reconciler.finish(slot, rollout, self.clock())
        if group is None:
            self.store.keep(slot.group, version, slot.member, rollout)
            return
        self.observer.on_group(group)
        self.store.save(group.index, group.members)
        if group.index in self.reconciler.groups:
            self.ledger.write("completed", group=group.index, version=group.version)
        else:
            self._aside += 1
            self.ledger.write("set_aside", group=group.index, version=group.version)
            self.observer.on_set_aside(group)
        self.store.forget(group.index)

    def _give_up(self, group: RolloutGroup[Rollout], reason: str) -> None:
        """The task can't be attempted: its other rollouts end, nothing of the group is kept, and the run goes on without it."""
        for task, slot in self._rollouts.items():
            if slot.group == group.index and task is not asyncio.current_task():
                task.cancel()
        line = f"task {group.task_id} (group {group.index}) is set aside: it met {group.faults} infra faults, the last: {reason}"
        self.ledger.write("unreachable", group=group.index, text=line)
        self.store.forget(group.index)
        self.observer.note(line)

    def _train_next(self) -> None:
        if self._training is not None:
            return
        step = self.reconciler.window.next_step
        batch = self.reconciler.batch()
        if batch is not None:
            self._aside = 0
            self.ledger.write("batch", step=step, groups=[group.index for group in batch])
            self._training = self._spawn(self._train(step, batch))

    async def _train(self, step: int, batch: list[RolloutGroup[Rollout]]) -> None:
        started = self._at(f"training step {step}")
        outcome = await self.learner.train(step, [group.index for group in batch])
        trained = self._at(f"copying version {step + 1}")
        self.ledger.write("trained", step=step, digest=outcome.digest)
        await self.learner.publish(step + 1)
        self._at(f"waiting for version {step} to be served")
        await self._served()
        outcome.values |= {"wait_s": started - self._idle_from, "train_s": trained - started}
        outcome.values["held_s"] = self._at(f"serving version {step + 1}") - trained
        self._serving = self._spawn(self._serve(outcome, batch))
        if (step + 1) % self.save_every == 0 or self.reconciler.done or self.learner.wants_checkpoint():
            await self._served()  # a step that a resume does not repeat is written down
            await self.learner.save(step + 1)
            self.ledger.write("saved", step=step + 1)
        self._idle_from = self._at("")
        self._training = None

    async def _serve(self, outcome: StepResult, batch: list[RolloutGroup[Rollout]]) -> None:
        """Publish the version after this step, while the next step runs."""
        began = self.clock()
        outcome.values |= await self.learner.sync(outcome.step + 1)
        self._changed.set()  # the window may have room now
        outcome.values["sync_s"] = self.clock() - began
        await self.observer.on_step(outcome, batch)
        self._serving = None

    async def _served(self) -> None:
        """No version is on its way any more. Raises what went wrong with it."""
        if self._serving is not None:
            await asyncio.shield(self._serving)

    def _at(self, doing: str) -> float:
        """The time; from now on the trainer is at `doing`, or waits."""
        self._doing, self._since_s = doing, self.clock()
        return self._since_s

    async def _report_waits(self) -> None:
        watchdog = Watchdog()
        while True:
            await asyncio.sleep(PATIENCE_S / 5)
            message = watchdog.look(self.doing, self.reconciler.lives(), self.clock())
            if message is not None:
                self.observer.note(message)

    @property
    def doing(self) -> TrainerActivity:
        """What the trainer is at, or whom it waits for."""
        if self._doing:
            return TrainerActivity(self._doing, self._since_s)
        group, due = self.reconciler.awaited_group() or (None, False)
        if group is None and self._serving is not None:
            return TrainerActivity(f"serving version {self.reconciler.window.next_step}", self._since_s)
        return TrainerActivity(f"step {self.reconciler.window.next_step}", self._since_s, group, due, self._aside)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start one activity; when it ends the loop wakes and gets what went wrong."""
        task = asyncio.create_task(work)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._rollouts.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failure = self._failure or error
        self._changed.set()
