"""Whose turn it is: lanes (one generator at one project) take turns so that a making stopped at any time leaves a balanced folder.

The category with the fewest tasks goes first, within it the project with the fewest, within that the lane that tried least. What a lane
tried in vain counts a quarter of a task, so that a category which yields little does not eat the whole budget: after forty failures it
waits like one that holds ten tasks. Among the projects of a category time counts too:
one whose tests take ten times as long as another's comes a third as often, and a project that was slow in one category waits in the others
before its first turn there. Lanes of large tasks are a category by themselves, which comes
so often as `LARGE` others: a third of a set is large. Pure: no clock, no I/O.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

FAILURE = (
    0.25  # of a task: a candidate costs seconds whether it is taken or not, and most generators take one in two to four
)
LARGE = 5.0
GIVEN_UP = 40  # failures in a row, after which a lane is closed: it has shown that it yields nothing here


@dataclass(frozen=True, order=True)
class Lane:
    """One generator at one project. `order` breaks ties, so that a making is a function of its seed."""

    category: str
    project: str
    generator: str
    large: bool = False

    @property
    def kind(self) -> tuple[str, bool]:
        return self.category, self.large


@dataclass
class Standing:
    """What became of a lane's candidates so far."""

    taken: int = 0
    failed: int = 0
    flying: int = 0
    seconds: float = 0.0  # spent on what was decided
    barren: int = 0  # failures since the last that was taken

    @property
    def weight(self) -> float:
        return self.taken + self.flying + FAILURE * self.failed

    def worth(self, each_s: float) -> float:
        """The weight, or what the time spent would have given at `each_s` seconds a task, whichever is more."""
        return max(self.weight, self.flying + self.seconds / each_s if each_s else 0.0)


@dataclass
class Turns:
    """`per_category`: no more tasks of one category than that; `order` are projects, the first go first at a tie."""

    per_category: int | None = None
    count: int | None = None
    lanes: dict[Lane, Standing] = field(default_factory=dict)
    closed: dict[Lane, str] = field(default_factory=dict)

    def open(self, lanes: Iterable[Lane]) -> None:
        for lane in lanes:
            self.lanes.setdefault(lane, Standing())

    def next(self, busy: Collection[Lane] = ()) -> Lane | None:
        """The lane whose turn it is, in flight from now on; None where nothing is open or enough is on its way."""
        if self.count is not None and self.taken + self._flying() >= self.count:
            return None
        each_s = self._each_s()
        kinds, projects = self._weights(each_s)
        slowness = self._slowness(each_s)
        full = {name for name, _ in kinds if self._full(name)}
        free = [
            lane for lane in self.lanes if lane not in self.closed and lane not in busy and lane.category not in full
        ]
        if not free:
            return None
        place = {lane: number for number, lane in enumerate(self.lanes)}
        chosen = min(
            free,
            key=lambda lane: (
                kinds[lane.kind] / (LARGE if lane.large else 1.0),
                max(projects[*lane.kind, lane.project], slowness.get(lane.project, 0.0)),
                self.lanes[lane].worth(each_s),
                place[lane],
            ),
        )
        self.lanes[chosen].flying += 1
        return chosen

    def came(self, lane: Lane, *, taken: bool, seconds: float = 0.0) -> None:
        """A candidate of the lane was decided."""
        standing = self.lanes[lane]
        standing.flying -= 1
        self.count_in(lane, taken=taken, seconds=seconds)

    def count_in(self, lane: Lane, *, taken: bool, seconds: float = 0.0) -> None:
        """What an earlier run decided counts like what this one does."""
        standing = self.lanes.setdefault(lane, Standing())
        standing.seconds += seconds
        standing.taken += taken
        standing.failed += not taken
        standing.barren = 0 if taken else standing.barren + 1
        if standing.barren >= GIVEN_UP:
            self.close(lane, f"{GIVEN_UP} candidates in a row were no tasks")

    def put_back(self, lane: Lane) -> None:
        """Nothing came of the turn, and nothing was decided."""
        self.lanes[lane].flying -= 1

    def close(self, lane: Lane, why: str) -> None:
        self.closed.setdefault(lane, why)

    @property
    def taken(self) -> int:
        return sum(standing.taken for standing in self.lanes.values())

    @property
    def done(self) -> bool:
        """Whether enough is taken, or no lane is open."""
        enough = self.count is not None and self.taken >= self.count
        return enough or all(lane in self.closed or self._full(lane.category) for lane in self.lanes)

    def _flying(self) -> int:
        return sum(standing.flying for standing in self.lanes.values())

    def _full(self, category: str) -> bool:
        if self.per_category is None:
            return False
        of = [standing for lane, standing in self.lanes.items() if lane.category == category]
        return sum(standing.taken + standing.flying for standing in of) >= self.per_category

    def _each_s(self) -> float:
        """Seconds that a task took so far, whatever it is of."""
        weight = sum(standing.taken + FAILURE * standing.failed for standing in self.lanes.values())
        return sum(standing.seconds for standing in self.lanes.values()) / weight if weight else 0.0

    def _slowness(self, each_s: float) -> dict[str, float]:
        """How many tasks of usual length one of the project takes longer, as far as that is known."""
        weight: Counter[str] = Counter()
        seconds: Counter[str] = Counter()
        for lane, standing in self.lanes.items():
            weight[lane.project] += standing.taken + FAILURE * standing.failed  # type: ignore[assignment]
            seconds[lane.project] += standing.seconds  # type: ignore[assignment]
        return {name: max(0.0, seconds[name] / weight[name] / each_s - 1) for name in weight if weight[name] and each_s}

    def _weights(self, each_s: float) -> tuple[Counter[tuple[str, bool]], Counter[tuple[str, bool, str]]]:
        kinds: Counter[tuple[str, bool]] = Counter()
        projects: Counter[tuple[str, bool, str]] = Counter()
        for lane, standing in self.lanes.items():
            kinds[lane.kind] += standing.weight  # type: ignore[assignment]
            projects[*lane.kind, lane.project] += standing.worth(each_s)  # type: ignore[assignment]
        return kinds, projects
