"""The sending side: turns each new state into a delta (now and then an anchor too) and puts it into the store.

The base of the next delta advances only when every live receiver acknowledged (promise 7; `etude.learn.weights.chain`). One
thread at a time (`etude.learn.weights.background` puts it on one). A publisher opened on a store that an earlier one left takes it
over and goes on after its newest version; if that can't be read any more, the next publication is an anchor, which heals.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from functools import partial

from etude.learn.weights.chain import Chain
from etude.learn.weights.codec import encode
from etude.learn.weights.digest import State, state_digest
from etude.learn.weights.errors import ForkedChain, StoreTakenOver, Unreachable, WeightsError
from etude.learn.weights.index import INDEX, IndexEntry, StoreIndex
from etude.learn.weights.layout import owned
from etude.learn.weights.manifest import ShardRecord, WeightManifest
from etude.learn.weights.path import needed
from etude.learn.weights.receiver import Receiver
from etude.learn.weights.store import WeightStore

# The writing side of a store: one at a time, and the newest one wins.
#
# Opening claims the store: the index is replaced by itself under this writer's name. An older writer that still lives
# (a trainer thought dead behind a broken line) finds another tag at its next commit and gets Overtaken; nothing it
# wrote counts. So leftovers may be removed right after the claim. Where a server ignores conditions, the claim only
# narrows the gap: see `etude.learn.weights.s3`.


class StoreWriter:
    """The one writer of a store; `index` is the last committed one. `spared`: folders that are not swept though the index does not name
    them; None: none is swept."""

    def __init__(self, store: WeightStore, spared: Callable[[], Collection[str] | None] = lambda: ()) -> None:
        self.store = store
        self._spared = spared
        self._name = secrets.token_hex(8)
        self.index, self._tag = store.tagged_index()
        self.commit(self.index)

    def put_shard(self, name: str, record: ShardRecord, blob: bytes) -> None:
        """Puts a shard of the anchor or delta `name` down. From any thread."""
        self.store.bucket.put(f"{name}/{record.file}", blob)

    def put_manifest(self, manifest: WeightManifest) -> IndexEntry:
        """Puts the manifest down, after all its shards; it counts once `commit` names the entry."""
        data = manifest.to_json().encode()
        entry = IndexEntry.of(manifest, hashlib.sha256(data).hexdigest())
        self.store.bucket.put(entry.manifest_key, data)
        return entry

    def commit(self, index: StoreIndex) -> None:
        """Makes `index` the truth, then removes what it no longer names. Raises Overtaken if another writer took over."""
        index = replace(index, writer=self._name, serial=self.index.serial + 1)
        try:
            self._tag = self.store.bucket.replace(INDEX, index.to_json(), self._tag)
        except StoreTakenOver:
            found, tag = self.store.tagged_index()
            if found.writer != self._name:
                raise StoreTakenOver(
                    f"{self.store.url} was taken over by the writer {found.writer or 'of an older index'} (serial "
                    f"{found.serial}); this one, {self._name}, must stop: nothing it wrote since then counts"
                ) from None
            # Else it is ours: the answer was lost, to a first attempt of this index or to an earlier one that was given up.
            self._tag = tag if found == index else self.store.bucket.replace(INDEX, index.to_json(), tag)
        self.index = index
        self.sweep()

    def sweep(self) -> None:
        """Removes anchors and deltas that the index does not name: retired, or left by a writer that was killed."""
        spared = self._spared()
        if spared is None:
            return
        names = {*spared, *(entry.name for entry in self.index.entries)}
        for folder in self.store.bucket.folders():
            if folder.startswith(("anchor-", "delta-", ".partial-")) and folder not in names:
                self.store.bucket.remove(folder)  # a reader may hold it open; the next commit tries again


# A late receiver walks at most this many deltas; at half the size of a copy each, more would cost it minutes for nothing.
ANCHOR_EVERY = 25
# The one before the newest stays for readers that began their walk there.
KEEP_ANCHORS = 2
# Shards made and uploaded at once: a bucket far away answers late, not slowly. Bounds memory to some shards each.
WORKERS = 4


@dataclass(frozen=True)
class Publication:
    """What one version cost. `ratio` is delta bytes over the newest anchor's bytes, both as stored (None without delta)."""

    version: int
    base: int | None
    digest: str
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
        self,
        store: WeightStore,
        *,
        anchor_every: int = ANCHOR_EVERY,
        keep_anchors: int = KEEP_ANCHORS,
        workers: int = WORKERS,
    ) -> None:
        self.store = store
        self._keep_anchors = keep_anchors
        self._anchor_every = anchor_every
        self._workers = workers
        self._states: dict[int, State] = {}  # by version: the base and what is pending
        self._writer = StoreWriter(store)
        self._chain = Chain(anchor_every)
        self.unreadable: WeightsError | None = None  # why the newest version in the store could not be gone on from
        self._open()

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

    def publish(self, state: State, version: int, *, copied: bool = False) -> Publication:
        """Puts `state` into the store as `version`; it is copied, so the caller may train on (`copied`: nothing else writes to it).

        Publishing a version again is fine if the state is the same (a resumed trainer), else it raises ForkedChain. If
        anything fails nothing is published and the same may be tried again, but for Overtaken: another writer has the store.
        """
        start = time.perf_counter()
        known = self._writer.index.digest(version)
        if known is not None:
            return self._again(state, version, known, start)
        state = state if copied else owned(state)
        plan = self._chain.plan(version)
        entries = list(self._writer.index.entries)
        if plan.base is not None:
            entries.append(self._write(state, version, plan.base))
        if plan.anchor:
            entries.append(self._write(state, version, None))
        held = {*self._chain.held, version}
        kept = {edge for edge in needed([entry.edge for entry in entries], self._keep_anchors, held)}
        self._writer.commit(StoreIndex(tuple(entry for entry in entries if entry.edge in kept)))
        self._chain.published(plan)
        self._states[version] = state
        self._forget()
        return self._report(version, start)

    def heal(self) -> None:
        """Makes the next publication an anchor: for when receivers report that the chain can't be walked."""
        self._chain.anchor_next()

    def mend(self, version: int, state: State | None = None) -> Publication:
        """An anchor for a version that is published and can't be read: its objects are written again, whatever is under their names.
        `state` is wanted where this publisher holds it no more. Raises ForkedChain if it is not what was published, Unreachable if nothing
        was, or no state is at hand."""
        start = time.perf_counter()
        known, state = self._writer.index.digest(version), self._states.get(version, state)
        if known is None or state is None:
            raise Unreachable(
                f"version {version} is not in {self.store.url}, or its state is not at hand: publish another"
            )
        self._again(state, version, known, start)
        anchor = self._write(state, version, None)
        others = tuple(entry for entry in self._writer.index.entries if entry.edge.name != anchor.name)
        self._writer.commit(StoreIndex((*others, anchor)))
        return self._report(version, start)

    def truncate(self, version: int) -> None:
        """Forgets every version after `version`: for a trainer that resumes from an older checkpoint on another course."""
        self._writer.commit(self._writer.index.without_after(version))
        self._open()

    def _open(self) -> None:
        index = self._writer.index
        newest, self._states, self.unreadable = index.newest, {}, None
        since = sum(entry.base is not None for entry in index.entries[_last_anchor(index) + 1 :])
        if newest is not None:
            try:
                self._states[newest] = Receiver(self.store).catch_up().state
            except WeightsError as error:
                self.unreadable = error
        base = newest if newest in self._states else None
        self._chain = Chain(self._anchor_every, base=base, newest=newest, since_anchor=since)

    def _write(self, state: State, version: int, base: int | None) -> IndexEntry:
        manifest = encode(
            state,
            partial(self._writer.put_shard, f"{'anchor' if base is None else 'delta'}-{version}"),
            version=version,
            base=None if base is None else self._states[base],
            base_version=base,
            base_digest=None if base is None else self._writer.index.digest(base),
            workers=self._workers,
        )
        return self._writer.put_manifest(manifest)

    def _again(self, state: State, version: int, known: str, start: float) -> Publication:
        digest = state_digest(state)
        if digest != known:
            raise ForkedChain(
                f"version {version} is published with digest {known[:12]}…, this state has {digest[:12]}…: "
                f"truncate({version - 1}) first if the course since then is given up"
            )
        return self._report(version, start)

    def _report(self, version: int, start: float) -> Publication:
        own = {entry.base is None: entry for entry in self._writer.index.entries if entry.version == version}
        delta, anchor = own.get(False), self._writer.index.entries[_last_anchor(self._writer.index)]
        some = delta or anchor
        return Publication(
            version=version,
            base=delta.base if delta else None,
            digest=some.digest,
            delta_bytes=delta.bytes if delta else None,
            anchor_bytes=anchor.bytes,
            raw_bytes=some.raw_bytes,
            seconds=time.perf_counter() - start,
        )

    def _forget(self) -> None:
        self._states = {version: self._states[version] for version in self._chain.held}


def _last_anchor(index: StoreIndex) -> int:
    """Position of the newest anchor in the index, -1 without one."""
    return max((i for i, entry in enumerate(index.entries) if entry.base is None), default=-1)
