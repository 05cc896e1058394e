"""When to send what: the sender's side of anchors, deltas and acknowledgements, as a pure state machine (promise 7).

Every published version but the first is a delta from a *base* that the sender still holds. The base advances to a version
only once every live receiver acknowledged it or a later one; until then further deltas are made from the old base. Every
`anchor_every` publications an anchor accompanies the delta, so that a late receiver need not walk the whole history.

    join(r) -> r is live, holds nothing      acknowledge(r, v) -> r holds v      leave(r) -> nothing waits for r any more
    plan(v) -> what to publish               published(v) -> it is in the store

A receiver that restarts joins again under the same or another name; it starts from an anchor. Messages may be lost, doubled
or late: an acknowledgement only ever raises what a receiver is known to have held, and a base that some receiver lost is no
harm, because an anchor always leads to every later version (`etude.learn.weights.path`).
"""

from __future__ import annotations

from dataclasses import dataclass

# States held in addition to the base: the oldest pending one is the likeliest to be acknowledged next, the newest the cheapest to
# go on from. More would cost a full copy of the weights each.
MAX_PENDING = 2


@dataclass(frozen=True)
class PublicationPlan:
    """What to publish for one version: a delta from `base` (None: there is none yet), and whether an anchor as well."""

    version: int
    base: int | None
    anchor: bool


class Chain:
    """The sender's memory. `newest` is the newest version in a store that an earlier sender left, `base` the same if its
    state is at hand; if it is not, the next publication is an anchor."""

    def __init__(
        self, anchor_every: int, *, base: int | None = None, newest: int | None = None, since_anchor: int = 0
    ) -> None:
        if anchor_every < 1:
            raise ValueError(f"anchor_every is {anchor_every}; it counts publications and is at least 1")
        self._anchor_every = anchor_every
        self._since_anchor = since_anchor
        self._held: dict[str, int | None] = {}  # live receivers and the newest version each acknowledged
        self.base = base
        self.newest = newest
        self._pending: list[int] = []  # published after the base, held, oldest first

    @property
    def receivers(self) -> dict[str, int | None]:
        """Live receivers and the newest version each acknowledged since it joined."""
        return dict(self._held)

    @property
    def held(self) -> frozenset[int]:
        """The versions whose states the sender must keep."""
        return frozenset([*self._pending] if self.base is None else [self.base, *self._pending])

    def join(self, receiver: str) -> None:
        """A new or restarted receiver: it holds nothing until it acknowledges."""
        self._held[receiver] = None

    def leave(self, receiver: str) -> None:
        """The receiver is gone or given up on; unknown names are ignored (it may have been dropped twice)."""
        self._held.pop(receiver, None)
        self._advance()

    def acknowledge(self, receiver: str, version: int) -> None:
        """`receiver` holds `version`, bit for bit. Ignored from receivers that are not live; late ones change nothing."""
        if self.newest is None or version > self.newest:
            raise ValueError(f"{receiver} acknowledged version {version}; the newest published is {self.newest}")
        if receiver in self._held:
            before = self._held[receiver]
            self._held[receiver] = version if before is None else max(before, version)
            self._advance()

    def plan(self, version: int) -> PublicationPlan:
        """What to publish as `version`. Changes nothing, so that a failed write can be planned again."""
        if self.newest is not None and version <= self.newest:
            raise ValueError(f"version {version} comes after {self.newest}, which is published; versions only grow")
        return PublicationPlan(version, self.base, self.base is None or self._since_anchor + 1 >= self._anchor_every)

    def anchor_next(self) -> None:
        """The next publication brings an anchor, whenever the last one was."""
        self._since_anchor = self._anchor_every

    def on_published(self, plan: PublicationPlan) -> None:
        """The plan's files are in the store and its index names them."""
        self._since_anchor = 0 if plan.anchor else self._since_anchor + 1
        self.newest = plan.version
        self._pending.append(plan.version)
        if self.base is None:
            self.base = self._pending.pop()
        elif len(self._pending) > MAX_PENDING:
            del self._pending[-2]
        self._advance()

    def _advance(self) -> None:
        held = list(self._held.values())
        if any(version is None for version in held):
            return  # a receiver that has acknowledged nothing yet holds the base back
        reached = min((version for version in held if version is not None), default=self.newest)
        while self._pending and reached is not None and self._pending[0] <= reached:
            self.base = self._pending.pop(0)
