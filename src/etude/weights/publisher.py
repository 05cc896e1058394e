"""The sending side: turns each new state into a delta (now and then an anchor too) and puts it into the store.

The base of the next delta advances only when every live receiver acknowledged (promise 7; `etude.weights.chain`). One
thread at a time. A publisher opened on a store that an earlier one left goes on after its newest version.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from torch import Tensor

from etude.weights.chain import Chain
from etude.weights.codec import encode
from etude.weights.digest import State, state_digest
from etude.weights.errors import ForkedChain
from etude.weights.path import needed
from etude.weights.receiver import Receiver
from etude.weights.store import Entry, Index, WeightStore, without_after

# A late receiver walks at most this many deltas; at half the size of a copy each, more would cost it minutes for nothing.
ANCHOR_EVERY = 25
# The one before the newest stays for readers that began their walk there.
KEEP_ANCHORS = 2


@dataclass(frozen=True)
class Published:
    """What one version cost. `ratio` is delta bytes over the newest anchor's bytes, both as stored (None without delta)."""

    version: int
    base: int | None
    sha256: str
    delta_bytes: int | None
    anchor_bytes: int  # of the newest anchor in the store
    raw_bytes: int  # of the state itself
    seconds: float

    @property
    def ratio(self) -> float | None:
        return None if self.delta_bytes is None else self.delta_bytes / max(self.anchor_bytes, 1)


class Publisher:
    """The one writer of a store."""

    def __init__(
        self, store: WeightStore, *, anchor_every: int = ANCHOR_EVERY, keep_anchors: int = KEEP_ANCHORS
    ) -> None:
        self.store = store
        self._keep_anchors = keep_anchors
        self._anchor_every = anchor_every
        self._states: dict[int, dict[str, Tensor]] = {}  # by version: the base and what is pending
        self._index = Index()
        self._chain = Chain(anchor_every)
        self._open(store.index())

    @property
    def newest(self) -> int | None:
        return self._chain.newest

    @property
    def base(self) -> int | None:
        """The version that the next delta starts from."""
        return self._chain.base

    def join(self, receiver: str) -> None:
        """`receiver` is live (again) and holds nothing; give each incarnation its own name."""
        self._chain.join(receiver)

    def leave(self, receiver: str) -> None:
        self._chain.leave(receiver)
        self._forget()

    def acknowledge(self, receiver: str, version: int) -> None:
        """`receiver` holds `version`."""
        self._chain.acknowledge(receiver, version)
        self._forget()

    def publish(self, state: State, version: int) -> Published:
        """Puts `state` into the store as `version`; it is copied, so the caller may train on.

        Publishing a version again is fine if the state is the same (a resumed trainer), else it raises ForkedChain.
        """
        start = time.perf_counter()
        known = self._index.digest(version)
        if known is not None:
            return self._again(state, version, known, start)
        plan = self._chain.plan(version)
        entries = list(self._index.entries)
        if plan.base is not None:
            entries.append(self._write(state, version, plan.base))
        if plan.anchor:
            entries.append(self._write(state, version, None))
        copy = {name: tensor.detach().cpu().clone() for name, tensor in state.items()}
        held = {*self._chain.held, version}
        kept = {edge for edge in needed([entry.edge for entry in entries], self._keep_anchors, held)}
        index = Index(tuple(entry for entry in entries if entry.edge in kept))
        self.store.commit(index)
        self._index = index
        self._chain.published(plan)
        self._states[version] = copy
        self._forget()
        return self._report(version, start)

    def truncate(self, version: int) -> None:
        """Forgets every version after `version`: for a trainer that resumes from an older checkpoint on another course."""
        index = without_after(self._index, version)
        self.store.commit(index)
        self._open(index)

    def _open(self, index: Index) -> None:
        newest = index.newest
        self._index, self._states = index, {}
        since = sum(entry.base is not None for entry in index.entries[_last_anchor(index) + 1 :])
        self._chain = Chain(self._anchor_every, resume_from=newest, since_anchor=since)
        if newest is not None:
            self._states[newest] = Receiver(self.store).catch_up().state

    def _write(self, state: State, version: int, base: int | None) -> Entry:
        before = None if base is None else self._states[base]
        return self.store.write(*encode(state, version=version, base=before, base_version=base))

    def _again(self, state: State, version: int, known: str, start: float) -> Published:
        digest = state_digest(state)
        if digest != known:
            raise ForkedChain(
                f"version {version} is published with sha256 {known[:12]}…, this state has {digest[:12]}…: "
                f"truncate({version - 1}) first if the course since then is given up"
            )
        return self._report(version, start)

    def _report(self, version: int, start: float) -> Published:
        own = {entry.base is None: entry for entry in self._index.entries if entry.version == version}
        delta, anchor = own.get(False), self._index.entries[_last_anchor(self._index)]
        some = delta or anchor
        return Published(
            version=version,
            base=delta.base if delta else None,
            sha256=some.sha256,
            delta_bytes=delta.bytes if delta else None,
            anchor_bytes=anchor.bytes,
            raw_bytes=some.raw_bytes,
            seconds=time.perf_counter() - start,
        )

    def _forget(self) -> None:
        self._states = {version: self._states[version] for version in self._chain.held}


def _last_anchor(index: Index) -> int:
    """Position of the newest anchor in the index, -1 without one."""
    return max((i for i, entry in enumerate(index.entries) if entry.base is None), default=-1)
