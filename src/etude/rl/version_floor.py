"""The floor: the version at which groups are admitted, and which every engine that is asked serves at least (promise 5). Pure.

Engines next to the trainer serve each version as soon as it is out: `home`. Those of a region follow at the pace of its link. While they are
at most `lag` versions behind, the floor waits for them. A region that is further behind is *away*, and nothing waits for it:

    near  = the versions served in regions that are at least home - lag
    floor = the greatest so far of  min(home, *near)

Promise 5 follows from three facts: a group is admitted at the floor of that moment; the floor never falls; a turn is asked of an engine
that serves the floor of its own moment or a later version. So no turn of a group admitted at v is sampled with weights older than v, and
the bound on the age of v (the staleness window) bounds the age of every token. What a region that keeps up costs is `home - floor` versions of
the bound, at most `lag`; one that is away costs nothing.

A region comes back although training never waits: it has to be within `lag` of home, not at home's own version. Once it is, the floor
stays where it is until the region has passed it, and the region is asked again.

Worked example, lag 2: home 7, a region at 6, floor 6. The link is lost; home 8, floor 6 (6 >= 8 - 2). Home 9: 6 is too old, the floor is
9, and goes with home. The link is back, and at home 12 (floor 12) the region has fetched 11: it is near again. Home 13: the floor stays 12, for 11
is waited for. With its next fetch the region serves 13, which is above the floor, and answers again.
"""

from __future__ import annotations

from collections.abc import Iterable


class VersionFloor:
    """`version` is the floor; -1 before anything is served."""

    def __init__(self, lag: int) -> None:
        self.lag = lag
        self.home = -1
        self.version = -1

    def rise(self, home: int, regional: Iterable[int] = ()) -> bool:
        """All engines at home serve `home`, those of regions these; whether the floor is a higher one now."""
        self.home = max(self.home, home)
        before = self.version
        self.version = max(before, min([self.home, *(served for served in regional if self.near(served))]))
        return self.version > before

    def near(self, served: int) -> bool:
        """Whether who serves this is waited for."""
        return served >= max(0, self.home - self.lag)
