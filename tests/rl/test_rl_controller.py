"""The real controller, reconciler, ledger and store under a simulated clock, with random faults and kills (promises 4-6, 8).

Engine, trainer and sandboxes are fakes at the outer edge; a failing seed replays exactly.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import random
import selectors
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etude.agent.harness.agent import AgentOutcome
from etude.core.trace.entry import EntryTokens, SessionHeader
from etude.core.trace.segment import Rollout
from etude.core.trace.session import Recorder
from etude.rl.controller import Controller, StepResult
from etude.rl.groups import RolloutGroup, TaskUnreachable
from etude.rl.ledger import RlLedger, fold
from etude.rl.resume import ReplayDiverged, open_progress, reconciler_at, train_again
from etude.rl.rollout_state import RolloutSlot
from etude.rl.schedule import Schedule, draw
from etude.rl.settings import RlSettings
from etude.rl.store import GroupStore
from etude.rollout.retry import InfraFault
from etude.rollout.ungraded_attempt import UngradedAttempt
from etude.tasks.task import Task

# Hundreds of simulated lives each flush their ledger: in memory that is free.
MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None


class Jump(selectors.DefaultSelector):
    """Instead of waiting for a timer, moves the clock there."""

    loop: SimulatedLoop

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise RuntimeError("deadlock: nothing is scheduled that could wake the loop")
        self.loop.now_s += max(timeout, 0.0)
        return super().select(0)


class SimulatedLoop(asyncio.SelectorEventLoop):
    now_s = 0.0

    def __init__(self) -> None:
        selector = Jump()
        selector.loop = self
        super().__init__(selector)

    def time(self) -> float:
        return self.now_s


class Killed(BaseException):
    """The simulated process is dead; nothing it does has an effect any more."""


class Life:
    """Counts everything that touches the world; at `ends_at` the process dies, before or after the act."""

    def __init__(self, ends_at: int | None = None) -> None:
        self.left = ends_at
        self.acts = 0

    def act(self) -> None:
        self.acts += 1
        if self.left is not None:
            self.left -= 1
            if self.left <= 0:
                raise Killed

    @property
    def over(self) -> bool:
        return self.left is not None and self.left <= 0


class MortalLedger(RlLedger):
    """Dies in the middle of a line, with the lines before it that were on their way.

    What a killed process had only buffered never reaches the disk; here the buffer outlives it, and would be flushed
    into a later life's file when the garbage collector finds it. So the dead one's descriptor is led away.
    """

    def __init__(self, path: Path, life: Life) -> None:
        super().__init__(path)
        self.life = life
        self.dead = False

    def write(self, kind: str, **values: Any) -> None:
        try:
            self.life.act()
        except Killed:
            if not self.dead:  # the line is cut off in the middle
                self._file.write(json.dumps({"kind": kind, **values})[:9])
                self._file.flush()
                self.die()
            raise
        super().write(kind, **values)
        self.life.act()

    def die(self) -> None:
        self.dead = True
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._file.fileno())
        os.close(nowhere)


class MortalStore(GroupStore):
    def __init__(self, folder: Path, life: Life) -> None:
        super().__init__(folder)
        self.life = life

    def save(self, group: int, rollouts: list[Rollout]) -> None:
        self.life.act()
        super().save(group, rollouts)
        self.life.act()

    def keep(self, group: int, version: int, member: int, rollout: Rollout) -> None:
        self.life.act()
        super().keep(group, version, member, rollout)
        self.life.act()

    def forget(self, group: int) -> None:
        self.life.act()
        super().forget(group)


class World:
    """Fake engine, trainer and sandboxes on one seed. Weights are a hash of everything trained, in order."""

    def __init__(self, folder: Path, plan: RlSettings, seed: int, *, fault_rate: float, life: Life) -> None:
        self.rng = random.Random(seed)
        self.plan = plan
        self.folder = folder
        self.fault_rate = fault_rate
        self.life = life
        self.store = MortalStore(folder / "groups", life)
        self.served = 0
        self.weights = "initial"
        self.steps: list[tuple[int, list[int]]] = []
        self.staleness: list[int] = []
        self.attempted: set[tuple[int, int]] = set()
        self.rolled: set[tuple[int, int]] = set()
        self.reconciler: Any = None
        self.ledger: MortalLedger | None = None

    async def restore(self, step: int) -> None:
        if step:
            self.weights = (self.folder / f"checkpoint-{step}").read_text()

    async def attempt(self, slot: RolloutSlot) -> Rollout:
        """As `attempts.Attempts`: what the agent left is on disk before its grading begins; a fault leaves nothing."""
        self.attempted.add((slot.group, slot.member))
        version, task = self.reconciler.groups[slot.group].version, a_task(slot.task_id)
        try:
            if slot.ended:
                ended = self.store.ended.load(slot, version, task)
            else:
                ended = await self.roll(slot)
                self.life.act()
                self.store.ended.keep(slot, version, ended, task, 1 << 20)
                self.life.act()
            await asyncio.sleep(self.rng.paretovariate(1.3))
            if self.rng.random() < self.fault_rate:
                raise InfraFault(f"the grader's sandbox died in attempt {slot.attempt}")
        except InfraFault:
            self.store.ended.forget(slot.group, slot.member)
            raise
        rewards = {"outcome": float(ended.files["score"])}
        return Rollout(ended.name, slot.task_id, slot.group, ended.outcome.segments, rewards)

    async def roll(self, slot: RolloutSlot) -> UngradedAttempt:
        self.rolled.add((slot.group, slot.member))
        versions = [self.served]
        for _ in range(self.rng.randint(1, 4)):
            await asyncio.sleep(self.rng.paretovariate(1.3))
            versions.append(self.served)
        if self.rng.random() < self.fault_rate:
            raise InfraFault(f"sandbox died in attempt {slot.attempt}")
        return an_ended(slot, versions, self.rng)

    async def train(self, step: int, groups: list[int]) -> StepResult:
        self.life.act()
        await asyncio.sleep(self.rng.expovariate(0.5))
        for index in groups:
            for one in self.store.load(index):
                assert one.rewards["outcome"] in (0.25, 1.0)  # only what a finished attempt was graded with
                self.staleness.append(step - one.start_version)
            data = self.store.path(index).read_bytes()
            self.weights = hashlib.sha256(self.weights.encode() + data).hexdigest()
        self.steps.append((step, groups))
        self.life.act()
        return StepResult(step, self.weights)

    async def publish(self, version: int) -> None:
        self.life.act()

    async def sync(self, version: int) -> dict[str, float]:
        await asyncio.sleep(self.rng.expovariate(2.0))
        self.life.act()
        self.served = version
        return {}

    @property
    def admits(self) -> int:
        return self.served

    def listen(self, heard: Any) -> None:
        """No region, so nothing but `sync` changes what is served."""

    def wants_checkpoint(self) -> bool:
        return False

    async def save(self, step: int) -> None:
        self.life.act()
        (self.folder / f"checkpoint-{step}").write_text(self.weights)
        self.life.act()


def a_task(name: str) -> Task:
    return Task(name, "debugging", "one", "mend it", {"score": "none", "kept": name}, ("true",), "made-up")


def an_ended(slot: RolloutSlot, versions: list[int], rng: random.Random) -> UngradedAttempt:
    """One to three segments whose tokens carry the versions in order; it left the score that it will get."""
    cuts = {0, *rng.sample(range(1, len(versions)), k=min(len(versions) - 1, rng.randint(0, 2)))}
    recorder, last = Recorder(SessionHeader(f"{slot.task_id}.{slot.member}")), None
    for at, version in enumerate(versions):
        parent = None if at in cuts else last
        last = recorder.append("completion", {}, parent=parent, tokens=EntryTokens([at], 0, [-0.5], [version]))
    session = recorder.session
    outcome = AgentOutcome("done", "", session.segments(), {"turns": 1.0}, session)
    files = {"score": rng.choice([b"0.25", b"1.0"]), "kept": slot.task_id.encode()}
    name = f"{slot.task_id}.{slot.member} {rng.random()}"
    return UngradedAttempt(name, outcome, files, "", 1, "", 0.0, {"create": 0.0, "agent": 1.0, "export": 0.0})


class Unobserved:
    """`controller.StepObserver` that keeps nothing."""

    def on_group(self, group: RolloutGroup[Rollout]) -> None: ...
    def on_set_aside(self, group: RolloutGroup[Rollout]) -> None: ...
    def note(self, text: str) -> None: ...
    async def on_step(self, step: StepResult, groups: list[RolloutGroup[Rollout]]) -> None: ...
    async def on_replay(self, step: StepResult, groups: list[RolloutGroup[Rollout]]) -> None: ...


def live(folder: Path, plan: RlSettings, seed: int, *, fault_rate: float = 0.0, life: Life | None = None) -> World:
    """One life of the process: start or resume, until the end or the kill."""
    life = life or Life()
    world = World(folder, plan, seed, fault_rate=fault_rate, life=life)
    loop = SimulatedLoop()
    asyncio.set_event_loop(loop)
    try:
        loop.run_until_complete(drive(folder, plan, world, loop))
    except (Killed, RuntimeError):
        if not life.over:
            raise
    finally:
        for task in asyncio.all_tasks(loop):
            task.cancel()
        try:
            loop.run_until_complete(asyncio.sleep(0))
        except Killed:
            pass  # the dead process' last tasks
        if life.over and world.ledger is not None:
            world.ledger.die()
        asyncio.set_event_loop(None)
        loop.close()
    return world


async def drive(folder: Path, plan: RlSettings, world: World, loop: SimulatedLoop) -> None:
    ledger = world.ledger = MortalLedger(folder / "ledger.jsonl", world.life)
    tasks = schedule(plan)
    progress = open_progress(ledger, tasks)
    await train_again(progress, tasks, world.store, ledger, world, Unobserved())
    await world.publish(progress.next_step)
    await world.sync(progress.next_step)
    world.reconciler = reconciler_at(progress, tasks, plan, world.store)
    controller = Controller(
        world.reconciler,
        world.attempt,
        world,
        world.store,
        ledger,
        save_every=plan.save_every,
        observer=Unobserved(),
        clock=loop.time,
    )
    await controller.run()


SPARE = 12


def schedule(plan: RlSettings) -> Schedule:
    spare = 0 if plan.set_aside == "none" else SPARE
    return draw({"only": [f"task-{i}" for i in range(400)]}, {}, plan.steps * plan.groups_per_step + spare, plan.seed)


def trained_tasks(folder: Path, plan: RlSettings) -> list[str]:
    progress = fold(RlLedger(folder / "ledger.jsonl").entries)
    ids = schedule(plan).task_ids
    return [ids[group] for step in range(progress.next_step) for group in progress.batches[step]]


def a_plan(**changes: Any) -> RlSettings:
    small = {"steps": 6, "groups_per_step": 3, "group_size": 3, "max_staleness": 2, "slots": 14, "save_every": 4}
    return RlSettings.model_validate(small | {"max_faults": 50} | changes)


plans = st.builds(
    a_plan,
    steps=st.integers(1, 7),
    groups_per_step=st.integers(1, 4),
    max_staleness=st.integers(0, 3),
    slots=st.integers(1, 30),
    save_every=st.integers(1, 5),
    window=st.sampled_from([None, 1, 2]),
    mode=st.sampled_from(["async", "sync"]),
)


@settings(max_examples=40, deadline=None)
@given(plan=plans, seed=st.integers(0, 2**32), fault_rate=st.sampled_from([0.0, 0.1, 0.3]))
def test_a_run_trains_every_task_once_within_the_bound(plan, seed, fault_rate):
    with tempfile.TemporaryDirectory(dir=MEMORY) as name:
        world = live(Path(name), plan, seed, fault_rate=fault_rate)
        assert sorted(trained_tasks(Path(name), plan)) == sorted(schedule(plan).task_ids)
        bound = 0 if plan.mode == "sync" else plan.max_staleness
        assert len(world.staleness) == plan.steps * plan.groups_per_step * plan.group_size
        assert all(0 <= value <= bound for value in world.staleness)


@settings(max_examples=60, deadline=None)
@given(plan=plans, seed=st.integers(0, 2**32), kills=st.lists(st.integers(1, 60), min_size=1, max_size=5))
def test_kills_change_neither_the_trained_tasks_nor_the_bound(plan, seed, kills):
    with tempfile.TemporaryDirectory(dir=MEMORY) as name:
        folder = Path(name)
        for number, ends_at in enumerate(kills):
            live(folder, plan, seed + number, fault_rate=0.1, life=Life(ends_at))
        world = live(folder, plan, seed + len(kills), fault_rate=0.1)
        tasks = trained_tasks(folder, plan)
        assert len(set(tasks)) == len(tasks)
        assert sorted(tasks) == sorted(schedule(plan).task_ids)
        assert all(value <= plan.max_staleness for value in world.staleness)


@settings(max_examples=40, deadline=None)
@given(
    plan=st.builds(a_plan, groups_per_step=st.integers(1, 3), group_size=st.integers(2, 4), set_aside=st.just("uniform")),
    seed=st.integers(0, 2**32),
    kills=st.lists(st.integers(1, 90), max_size=4),
)  # fmt: skip
def test_a_group_set_aside_is_never_trained_and_another_takes_its_place(plan, seed, kills):
    with tempfile.TemporaryDirectory(dir=MEMORY) as name:
        folder = Path(name)
        for number, ends_at in enumerate(kills):
            live(folder, plan, seed + number, fault_rate=0.1, life=Life(ends_at))
        world = live(folder, plan, seed + len(kills), fault_rate=0.1)
        progress, total = fold(RlLedger(folder / "ledger.jsonl").entries), len(schedule(plan))
        assert (
            not progress.trained & progress.aside and len(progress.trained) == progress.next_step * plan.groups_per_step
        )
        outcomes = lambda group: {one.rewards["outcome"] for one in world.store.load(group)}
        assert all(len(outcomes(group)) > 1 for group in progress.trained)
        assert all(len(outcomes(group)) == 1 for group in progress.aside)
        left = total - len(progress.trained) - len(progress.aside)
        assert progress.next_step == plan.steps or left < plan.groups_per_step
        assert all(value <= plan.max_staleness for value in world.staleness)


@settings(max_examples=40, deadline=None)
@given(plan=plans, seed=st.integers(0, 2**32), ends_at=st.integers(5, 90))
def test_what_was_scored_before_a_kill_is_not_attempted_again(plan, seed, ends_at):
    with tempfile.TemporaryDirectory(dir=MEMORY) as name:
        folder = Path(name)
        live(folder, plan, seed, fault_rate=0.1, life=Life(ends_at))
        kept = GroupStore(folder / "groups").unfinished_groups()
        held = {(group, member): rollout.id for group, one in kept.items() for member, rollout in one.results.items()}
        world = live(folder, plan, seed + 1, fault_rate=0.1)
        assert not world.attempted & held.keys()
        assert all(world.store.load(group)[member].id == name for (group, member), name in held.items())
        assert not list((folder / "groups" / "scored").iterdir())


@settings(max_examples=60, deadline=None)
@given(plan=plans, seed=st.integers(0, 2**32), ends_at=st.integers(5, 120), damaged=st.integers(0, 2**32))
def test_what_had_ended_before_a_kill_is_graded_and_not_rolled_out_again_unless_it_is_damaged(
    plan, seed, ends_at, damaged
):
    with tempfile.TemporaryDirectory(dir=MEMORY) as name:
        folder, dice = Path(name), random.Random(damaged)
        live(folder, plan, seed, life=Life(ends_at))
        store = GroupStore(folder / "groups")
        kept = {(group, member) for group, one in store.unfinished_groups().items() for member in one.ended}
        paths = {path: tuple(map(int, path.stem.split("-")[:2])) for path in store.ended.folder.iterdir()}
        broken = {paths[path] for path in sorted(paths) if dice.random() < 0.3 and break_a_byte(path, dice)}
        assert set(paths.values()) == kept and broken <= kept
        # Of a group that was finished in the moment of the kill nothing is needed any more.
        text = fold(RlLedger(folder / "ledger.jsonl").entries)
        finished = {*text.complete, *text.trained}
        kept, broken = ({key for key in keys if key[0] not in finished} for keys in (kept, broken))
        world = live(folder, plan, seed + 1)
        trained = {group for _, groups in world.steps for group in groups}
        assert not world.rolled & (kept - broken) and broken <= world.rolled
        assert {group for group, _ in kept} <= trained
        assert sorted(trained_tasks(folder, plan)) == sorted(schedule(plan).task_ids)
        assert all(value <= plan.max_staleness for value in world.staleness)
        assert not list(store.ended.folder.iterdir())


def break_a_byte(path: Path, dice: random.Random) -> bool:
    data = bytearray(path.read_bytes())
    data[dice.randrange(len(data))] ^= dice.randrange(1, 256)
    return bool(path.write_bytes(data))


@pytest.fixture
def memory():
    with tempfile.TemporaryDirectory(dir=MEMORY) as name:
        yield Path(name)


def test_a_kill_at_every_single_act_is_survived(memory):
    plan = a_plan(steps=3, groups_per_step=2, save_every=2)
    acts = live(memory / "whole", plan, 5).life.acts
    assert acts > 40
    for ends_at in range(1, acts + 1):
        folder = memory / str(ends_at)
        live(folder, plan, 5, life=Life(ends_at))
        world = live(folder, plan, 6)
        assert sorted(trained_tasks(folder, plan)) == sorted(schedule(plan).task_ids)
        last = fold(RlLedger(folder / "ledger.jsonl").entries)
        assert last.saved == plan.steps
        assert (folder / f"checkpoint-{plan.steps}").read_text() == last.digests[plan.steps - 1]
        assert world.weights == last.digests[plan.steps - 1]


def test_async_overlaps_generation_with_training(tmp_path):
    """Under the same latencies the asynchronous run takes less simulated time than the synchronous one."""
    seconds = {}
    for mode in ("async", "sync"):
        plan = a_plan(steps=20, mode=mode)
        loop_time: list[float] = []

        async def timed(folder: Path, plan: RlSettings, out: list[float]) -> None:
            loop = asyncio.get_running_loop()
            world = World(folder, plan, 1, fault_rate=0.0, life=Life())
            await drive(folder, plan, world, loop)  # pyright: ignore[reportArgumentType]
            out.append(loop.time())

        loop = SimulatedLoop()
        loop.run_until_complete(timed(tmp_path / mode, plan, loop_time))
        loop.close()
        seconds[mode] = loop_time[0]
    assert seconds["async"] < 0.7 * seconds["sync"]


class SlowStore(World):
    """Each version takes long to be served; tells what happened in which order."""

    def __init__(self, *arguments: Any, **words: Any) -> None:
        super().__init__(*arguments, **words)
        self.events: list[str] = []

    async def train(self, step: int, groups: list[int]) -> StepResult:
        self.events.append(f"train {step}")
        return await super().train(step, groups)

    async def publish(self, version: int) -> None:
        self.events.append(f"copy {version}")

    async def sync(self, version: int) -> dict[str, float]:
        await asyncio.sleep(1000.0)
        self.events.append(f"serve {version}")
        self.served = version
        return {}

    async def save(self, step: int) -> None:
        self.events.append(f"save {step}")
        await super().save(step)


def test_the_next_step_is_trained_while_the_version_before_is_on_its_way_and_one_at_most_is(tmp_path):
    plan = a_plan(steps=5, max_staleness=3, slots=60, save_every=3)
    loop = SimulatedLoop()
    world = SlowStore(tmp_path, plan, 1, fault_rate=0.0, life=Life())
    loop.run_until_complete(drive(tmp_path, plan, world, loop))
    loop.close()
    at = {text: place for place, text in enumerate(world.events)}
    assert at["train 1"] < at["serve 1"] < at["serve 2"]  # groups of version 0 were at hand
    for version in range(2, plan.steps + 1):
        assert at[f"copy {version}"] < at[f"serve {version}"] and at[f"serve {version - 1}"] < at[f"serve {version}"]
        if version < plan.steps:
            assert at[f"serve {version - 1}"] < at[f"train {version}"]
    assert at["serve 3"] < at["save 3"] < at["train 3"] and at["serve 5"] < at["save 5"]
    assert all(0 <= age <= plan.max_staleness for age in world.staleness)


def test_a_task_that_never_works_stops_the_run_by_name(tmp_path):
    plan = a_plan(max_faults=5)
    with pytest.raises(TaskUnreachable, match="task task-[0-9]+ .* met 6 infra faults, the last: sandbox died"):
        live(tmp_path, plan, 3, fault_rate=1.0)


def live_with(
    folder: Path, plan: RlSettings, seed: int, bad: set[str], reserve: int, life: Life | None = None
) -> World:
    """A life in which attempts at `bad` tasks always meet a fault; the schedule has this many tasks in reserve."""
    with pytest.MonkeyPatch.context() as patch:
        drawn = schedule(plan)
        rest = [f"task-{i}" for i in range(400) if f"task-{i}" not in drawn.task_ids][:reserve]
        patch.setattr(sys.modules[__name__], "schedule", lambda plan: replace(drawn, reserve=tuple(rest)))
        roll = World.roll

        async def failing(self: World, slot: RolloutSlot) -> UngradedAttempt:
            if slot.task_id in bad:
                await asyncio.sleep(1.0)
                raise InfraFault("no image")
            return await roll(self, slot)

        patch.setattr(World, "roll", failing)
        return live(folder, plan, seed, life=life)


@settings(max_examples=40, deadline=None)
@given(
    plan=st.builds(a_plan, steps=st.integers(1, 5), groups_per_step=st.integers(1, 4), slots=st.integers(1, 20), max_faults=st.integers(0, 5)),
    seed=st.integers(0, 2**32),
    count=st.integers(1, 4),
    kills=st.lists(st.integers(1, 60), max_size=3),
)  # fmt: skip
def test_a_task_that_never_works_is_set_aside_and_another_takes_its_place(plan, seed, count, kills):
    with tempfile.TemporaryDirectory(dir=MEMORY) as name:
        folder, ids = Path(name), schedule(plan).task_ids
        bad = set(random.Random(seed).sample(ids, min(count, len(ids))))
        for number, ends_at in enumerate(kills):
            live_with(folder, plan, seed + number, bad, 4, Life(ends_at))
        world = live_with(folder, plan, seed + len(kills), bad, 4)
        progress = fold(RlLedger(folder / "ledger.jsonl").entries)
        assert progress.next_step == plan.steps
        trained = [group for groups in progress.batches.values() for group in groups]
        assert len(set(trained)) == plan.steps * plan.groups_per_step
        assert {ids[group] for group in progress.unreachable} == bad and not progress.unreachable.keys() & set(trained)
        assert {ids[group] for group in trained if group < len(ids)} == set(ids) - bad
        assert all("infra faults, the last: no image" in text for text in progress.unreachable.values())
        assert all(0 <= value <= plan.max_staleness for value in world.staleness)
        assert not list((folder / "groups" / "scored").iterdir()) and world.reconciler.running == 0


@pytest.mark.parametrize("end", ["a fault", "a rollout"])
def test_how_a_cancelled_rollout_of_an_unreachable_task_ends_has_no_effect(tmp_path, monkeypatch, end):
    plan = a_plan(max_faults=0)
    bad = schedule(plan).task_ids[0]
    roll, cancelled = World.roll, []

    async def failing(self: World, slot: RolloutSlot) -> UngradedAttempt:
        if slot.task_id != bad:
            return await roll(self, slot)
        if slot.member == 0:
            await asyncio.sleep(1.0)
            raise InfraFault("no image")
        try:
            await asyncio.sleep(1000.0)
        except asyncio.CancelledError:
            cancelled.append(slot.member)
            if end == "a fault":
                raise InfraFault("the sandbox can't be removed") from None
        return an_ended(slot, [0], self.rng)

    monkeypatch.setattr(World, "roll", failing)
    world = live_with(tmp_path, plan, 3, set(), 4)
    progress = fold(RlLedger(tmp_path / "ledger.jsonl").entries)
    assert cancelled == [1, 2] and list(progress.unreachable) == [0]
    assert progress.next_step == plan.steps and world.reconciler.running == 0


def test_without_a_reserve_the_run_ends_with_the_steps_that_it_can_fill(tmp_path):
    plan = a_plan(max_faults=2)
    live_with(tmp_path, plan, 3, {schedule(plan).task_ids[4]}, 0)
    assert fold(RlLedger(tmp_path / "ledger.jsonl").entries).next_step == plan.steps - 1


def test_more_unreachable_tasks_than_may_be_stop_the_run_and_count_across_kills(tmp_path):
    plan = a_plan(max_faults=2, max_unreachable=1, slots=40)
    ids = schedule(plan).task_ids
    with pytest.raises(TaskUnreachable, match="1 tasks before it were set aside for the same .rl.max_unreachable."):
        live_with(tmp_path, plan, 3, {ids[0], ids[1]}, 4)
    with pytest.raises(TaskUnreachable, match="met 3 infra faults"):  # the first is not tried again, the second is
        live_with(tmp_path, plan, 4, {ids[0], ids[1]}, 4)
    live_with(tmp_path, plan, 5, {ids[0]}, 4)  # the cause of the second was mended
    assert fold(RlLedger(tmp_path / "ledger.jsonl").entries).next_step == plan.steps


def test_a_replay_that_comes_to_other_weights_is_refused(tmp_path):
    plan = a_plan(save_every=5)
    life = Life(110)
    live(tmp_path, plan, 3, life=life)
    progress = fold(RlLedger(tmp_path / "ledger.jsonl").entries)
    assert progress.digests and not progress.saved
    store = GroupStore(tmp_path / "groups")
    group = progress.batches[0][0]
    store.save(group, store.load(group)[::-1])
    with pytest.raises(ReplayDiverged, match="step 0, trained again"):
        live(tmp_path, plan, 4)


def test_a_ledger_of_another_task_list_is_refused(tmp_path):
    live(tmp_path, a_plan(steps=2), 3)
    with pytest.raises(ValueError, match="belongs to another task list"):
        live(tmp_path, a_plan(steps=2, seed=9), 3)
