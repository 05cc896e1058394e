"""The reconciler as a state machine: whatever comes in whatever order, slots, deadlines and groups hold (promises 5, 6, 8)."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from etude.rl.groups import UnfinishedGroup
from etude.rl.reconciler import Reconciler, RolloutLimits
from etude.rl.rollout_state import RUNNING, RolloutPhase, RolloutSlot
from etude.rl.schedule import Schedule
from etude.rl.window import StalenessWindow

STEPS = 6


class Driven(RuleBasedStateMachine):
    """The controller's part, done by chance."""

    @initialize(
        per_step=st.integers(1, 3),
        size=st.integers(1, 3),
        staleness=st.integers(0, 3),
        slots=st.integers(1, 9),
        reach=st.sampled_from([None, 1, 2]),
        barren=st.sets(st.integers(0, 40), max_size=6),
        spare=st.integers(0, 8),
    )
    def begin(
        self, per_step: int, size: int, staleness: int, slots: int, reach: int | None, barren: set[int], spare: int
    ) -> None:
        self.barren, self.spare = barren, spare
        self.aside: list[int] = []
        self.size, self.staleness, self.per_step = size, staleness, per_step
        self.window = StalenessWindow(per_step, staleness, reach=None if reach is None else reach * per_step)
        self.reconciler = self.fresh(slots, 0)
        self.running: list[RolloutSlot] = []
        self.left: dict[tuple[int, int], int] = {}
        self.trained: list[int] = []
        self.admitted_at: dict[int, int] = {}
        self.attempts: dict[tuple[int, int], int] = {}

    def fresh(self, slots: int, version: int) -> Reconciler[str]:
        tasks = Schedule(tuple(f"task-{n}" for n in range(STEPS * self.per_step + self.spare)))
        aside = lambda results: int(results[0].split(".")[0]) in self.barren
        return Reconciler(
            tasks, self.window, limits=RolloutLimits(slots, self.size, 10**6), version=version, steps=STEPS, aside=aside
        )

    @rule()
    def start(self) -> None:
        found = self.reconciler.start()
        assert not set(found) & set(self.running)
        for (
            slot
        ) in found:  # what an agent left is handed out once, as the attempt that left it, and straight to its grading
            assert slot.ended == (self.left.pop((slot.group, slot.member), None) is not None)
            life = self.reconciler.groups[slot.group].lives[slot.member]
            assert life.phase is (RolloutPhase.GRADING if slot.ended else RolloutPhase.PLACED)
        self.running += found
        for group in self.reconciler.take_admitted():
            assert group.index not in self.admitted_at
            self.admitted_at[group.index] = group.version

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        slot = self.running.pop(data.draw(st.integers(0, len(self.running) - 1)))
        self.over(slot)

    def over(self, slot: RolloutSlot) -> None:
        group = self.reconciler.finish(slot, f"{slot.group}.{slot.member}")
        assert group is None or group.members == [f"{slot.group}.{member}" for member in range(self.size)]
        if group is not None and slot.group not in self.reconciler.groups:
            self.aside.append(slot.group)

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def fail(self, data: st.DataObject) -> None:
        slot = self.running.pop(data.draw(st.integers(0, len(self.running) - 1)))
        self.reconciler.fail(slot, "its host died")
        self.attempts[slot.group, slot.member] = slot.attempt + 1

    @precondition(lambda self: self.running)
    @rule(data=st.data(), phase=st.sampled_from(sorted(RUNNING)))
    def tell(self, data: st.DataObject, phase: RolloutPhase) -> None:
        self.reconciler.note(data.draw(st.sampled_from(self.running)), phase, 0.0)

    @rule()
    def train(self) -> None:
        step = self.window.next_step
        batch = self.reconciler.batch()
        if batch is not None:
            assert len(batch) == self.per_step and all(group.complete for group in batch)
            assert all(step - group.version <= self.staleness for group in batch)
            self.trained += [group.index for group in batch]

    @rule()
    def serve(self) -> None:
        self.reconciler.version = self.window.next_step

    @rule(data=st.data())
    def die_and_go_on(self, data: st.DataObject) -> None:
        """As after a kill: what was scored is kept with the version of its admission, some or all of it, and so are the remains of
        attempts that were grading; everything else that ran starts again."""
        version, kept = self.window.next_step, self.reconciler.groups
        begun = {index: UnfinishedGroup(group.version, dict(group.results)) for index, group in kept.items()}
        for index, one in begun.items():
            if 0 < len(one.results) < self.size and data.draw(st.booleans()):
                one.results.pop(max(one.results))
            grading = [life.slot for life in kept[index].lives if life.phase is RolloutPhase.GRADING]
            one.ended |= {slot.member: slot.attempt for slot in grading if data.draw(st.booleans())}
        begun = {index: one for index, one in begun.items() if one.results or one.ended}
        self.window = StalenessWindow(self.per_step, self.staleness, version, reach=self.window.reach)
        self.reconciler = self.fresh(self.reconciler.slots, version)
        self.reconciler.restore([*self.trained, *self.aside], begun)
        assert {index: group.results for index, group in self.reconciler.groups.items()} == {
            index: one.results for index, one in begun.items()
        }
        self.left = {(index, member): at for index, one in begun.items() for member, at in one.ended.items()}
        self.running, self.attempts = [], dict(self.left)
        self.admitted_at = {index: one.version for index, one in begun.items()}

    @invariant()
    def holds(self) -> None:
        if not hasattr(self, "running"):
            return
        lives = self.reconciler.lives()
        assert self.reconciler.running == len(self.running) <= self.reconciler.slots
        assert {life.slot for life in lives if life.running} == set(self.running)
        assert len(set(self.trained)) == len(self.trained)
        assert not {*self.trained, *self.aside} & set(self.reconciler.groups)
        assert set(self.aside) <= self.barren and not self.barren & set(self.trained)
        assert len(self.reconciler.groups) <= self.per_step * (STEPS - self.window.next_step)
        assert all(life.slot.attempt == self.attempts.get((life.slot.group, life.slot.member), 0) for life in lives)
        for group in self.reconciler.groups.values():
            assert group.queued == sum(life.phase is RolloutPhase.QUEUED for life in group.lives)
            assert group.complete == all(life.phase is RolloutPhase.GROUPED for life in group.lives)

    def teardown(self) -> None:
        """From any random state, it reaches its end: nothing is stuck, no task was trained twice, and all steps were made unless
        the tasks to spare were used up."""
        if not hasattr(self, "running"):
            return
        while not self.reconciler.done:
            self.start()
            for slot in self.running:
                self.over(slot)
            self.running = []
            self.train()
            self.serve()
        assert len(self.trained) == self.per_step * self.window.next_step
        tasks = STEPS * self.per_step + self.spare
        usable = tasks - len(self.barren & set(range(tasks)))
        assert self.window.next_step == min(STEPS, usable // self.per_step)
        if not self.aside and not self.spare:
            assert sorted(self.trained) == list(range(tasks))


def test_what_ended_too_long_ago_to_be_trained_is_rolled_out_again():
    """As what was scored: a group whose version the window has no room for starts again, with nothing of what it had."""
    window = StalenessWindow(2, 1, next_step=5)
    tasks = Schedule(tuple(f"task-{n}" for n in range(16)))
    reconciler: Reconciler[str] = Reconciler(tasks, window, limits=RolloutLimits(8, 2, 9), version=5)
    reconciler.restore(range(10), {10: UnfinishedGroup(3, {0: "late"}, {1: 0}), 11: UnfinishedGroup(4, {}, {0: 2})})
    assert set(reconciler.groups) == {11}
    slots = reconciler.start()
    assert slots[0] == RolloutSlot(11, 0, "task-11", attempt=2, ended=True)
    assert {(slot.group, slot.member) for slot in slots[1:]} >= {(10, 0), (10, 1)}
    assert not any(slot.ended for slot in slots[1:]) and reconciler.groups[10].version == 5


Driven.TestCase.settings = settings(max_examples=80, stateful_step_count=60, deadline=None)
TestReconciler = Driven.TestCase
