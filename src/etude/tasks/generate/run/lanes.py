"""Schedules lanes (one generator at one project), so that a run that stops at any time leaves a balanced folder.

The category with the fewest tasks goes first, within it the project with the fewest, within that the lane with the
least load. A failed candidate counts as a quarter of a task, so that a category with a low yield does not use the whole
budget: after forty failures it waits like one with ten tasks. Among the projects of a category, time counts too. A
project whose tests take ten times as long gets a third as many turns, and a project that was slow in one category waits
in the others before its first turn there. Lanes of large tasks form a category of their own that gets `LARGE_FACTOR`
times as many turns, so that a third of a set is large. Pure: no clock, no I/O.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

# In tasks. A candidate costs the same seconds whether it is taken or not, and most generators take one in two to four.
FAILURE_WEIGHT = 0.25
LARGE_FACTOR = 5.0
MAX_FAILURES_IN_A_ROW = 40  # after which a lane closes, because it yields nothing here


@dataclass(frozen=True, order=True)
class Lane:
    """One generator at one project."""

    category: str
    project: str
    generator: str
    large: bool = False

    @property
    def kind(self) -> tuple[str, bool]:
        return self.category, self.large


@dataclass
class LaneProgress:
    """Counts of a lane's candidates."""

    taken: int = 0
    failed: int = 0
    in_flight: int = 0
    seconds: float = 0.0  # spent on decided candidates
    failures_in_a_row: int = 0  # since the last task that was taken

    @property
    def weight(self) -> float:
        return self.taken + self.in_flight + FAILURE_WEIGHT * self.failed

    def load(self, task_s: float) -> float:
        """The larger of the weight and the tasks that the spent time would have produced at `each_s` seconds a task."""
        return max(self.weight, self.in_flight + self.seconds / task_s if task_s else 0.0)


@dataclass
class LaneScheduler:
    """`per_category`: limit of tasks of one category. `lanes` are in order of opening; the first wins a tie."""

    per_category: int | None = None
    count: int | None = None
    lanes: dict[Lane, LaneProgress] = field(default_factory=dict)
    closed: dict[Lane, str] = field(default_factory=dict)

    def open(self, lanes: Iterable[Lane]) -> None:
        for lane in lanes:
            self.lanes.setdefault(lane, LaneProgress())

    def next(self, busy: Collection[Lane] = ()) -> Lane | None:
        """The next lane, which then counts as in flight; None where no lane is open or enough tasks are in flight."""
        if self.count is not None and self.taken + self._in_flight() >= self.count:
            return None
        task_s = self._seconds_per_task()
        kinds, projects = self._weights(task_s)
        slowness = self._slowness(task_s)
        full = {name for name, _ in kinds if self._is_full(name)}
        free = [
            lane for lane in self.lanes if lane not in self.closed and lane not in busy and lane.category not in full
        ]
        if not free:
            return None
        place = {lane: number for number, lane in enumerate(self.lanes)}
        chosen = min(
            free,
            key=lambda lane: (
                kinds[lane.kind] / (LARGE_FACTOR if lane.large else 1.0),
                max(projects[*lane.kind, lane.project], slowness.get(lane.project, 0.0)),
                self.lanes[lane].load(task_s),
                place[lane],
            ),
        )
        self.lanes[chosen].in_flight += 1
        return chosen

    def settle(self, lane: Lane, *, taken: bool, seconds: float = 0.0) -> None:
        """Counts a decided candidate of a lane in flight."""
        progress = self.lanes[lane]
        progress.in_flight -= 1
        self.record(lane, taken=taken, seconds=seconds)

    def record(self, lane: Lane, *, taken: bool, seconds: float = 0.0) -> None:
        """Counts a decision, of this run or of an earlier one."""
        progress = self.lanes.setdefault(lane, LaneProgress())
        progress.seconds += seconds
        progress.taken += taken
        progress.failed += not taken
        progress.failures_in_a_row = 0 if taken else progress.failures_in_a_row + 1
        if progress.failures_in_a_row >= MAX_FAILURES_IN_A_ROW:
            self.close(lane, f"{MAX_FAILURES_IN_A_ROW} candidates in a row were no tasks")

    def release(self, lane: Lane) -> None:
        """Ends a turn that decided nothing."""
        self.lanes[lane].in_flight -= 1

    def close(self, lane: Lane, why: str) -> None:
        self.closed.setdefault(lane, why)

    @property
    def taken(self) -> int:
        return sum(progress.taken for progress in self.lanes.values())

    @property
    def is_done(self) -> bool:
        """Whether enough tasks are taken, or no lane is open."""
        enough = self.count is not None and self.taken >= self.count
        return enough or all(lane in self.closed or self._is_full(lane.category) for lane in self.lanes)

    def _in_flight(self) -> int:
        return sum(progress.in_flight for progress in self.lanes.values())

    def _is_full(self, category: str) -> bool:
        if self.per_category is None:
            return False
        category_lanes = [progress for lane, progress in self.lanes.items() if lane.category == category]
        return sum(progress.taken + progress.in_flight for progress in category_lanes) >= self.per_category

    def _seconds_per_task(self) -> float:
        """Mean seconds a task so far, over all lanes."""
        weight = sum(progress.taken + FAILURE_WEIGHT * progress.failed for progress in self.lanes.values())
        return sum(progress.seconds for progress in self.lanes.values()) / weight if weight else 0.0

    def _slowness(self, task_s: float) -> dict[str, float]:
        """How many tasks of mean duration one task of a project costs in addition, where that is known."""
        weight: Counter[str] = Counter()
        seconds: Counter[str] = Counter()
        for lane, progress in self.lanes.items():
            weight[lane.project] += progress.taken + FAILURE_WEIGHT * progress.failed  # type: ignore[assignment]
            seconds[lane.project] += progress.seconds  # type: ignore[assignment]
        return {name: max(0.0, seconds[name] / weight[name] / task_s - 1) for name in weight if weight[name] and task_s}

    def _weights(self, task_s: float) -> tuple[Counter[tuple[str, bool]], Counter[tuple[str, bool, str]]]:
        kinds: Counter[tuple[str, bool]] = Counter()
        projects: Counter[tuple[str, bool, str]] = Counter()
        for lane, progress in self.lanes.items():
            kinds[lane.kind] += progress.weight  # type: ignore[assignment]
            projects[*lane.kind, lane.project] += progress.load(task_s)  # type: ignore[assignment]
        return kinds, projects
