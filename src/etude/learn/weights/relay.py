"""A region's own copy of a weight store: every object crosses the link once for all its readers there (promise 7 holds at every moment).

    source (the run's)  --link-->  target (the region's)  --->  engines of the region, which see nothing else

Shards are copied first, then their manifest, then the index names them: what a reader of the target is led to is whole, whenever this is
killed, and what lies there already is not fetched again. It copies only what leads to the newest version (`relay_plan`). Everything is
checked against its sha256 on the way; an object that is broken at the source is passed by, until a newer index heals the chain.
A target belongs to one source, and says so in `relay.json`; a second relay overtakes the first, which stops.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

from etude.learn.weights.bucket import ObjectBucket
from etude.learn.weights.codec import Workers
from etude.learn.weights.errors import BadStore, CorruptShard, ForeignChain, MissingShard, Unreachable, WeightsError
from etude.learn.weights.relay_plan import Copies, copies, gives_way, kept_entries
from etude.learn.weights.store import INDEX, IndexEntry, StoreIndex, StoreWriter, WeightManifest, WeightStore

OWNER = "relay.json"
# A stream over a long link with losses carries little, so an object comes in parts over several; none so small that asking outweighs it.
STREAMS = 16
LEAST_PART, MOST_PART = 64 << 10, 8 << 20
# Between two looks at the source's index while something is being copied: one small request.
LOOK_S = 0.5
POLL_S = 0.5
# A silent source is asked again after pauses that double up to this.
MOST_PAUSE_S = 10.0
Say = Callable[[dict[str, Any]], None]


@dataclass
class RelayTraffic:
    """What came over the link so far. `shard_bytes` of shards, `shards` how many; `bytes` all, manifests and indexes too."""

    bytes: int = 0
    shard_bytes: int = 0
    shards: int = 0


class _Dropped(Exception):
    """A newer index leaves what was being copied aside."""


class Stop(Protocol):
    """Says when to end: a `StopFlag`, or a threading.Event."""

    def is_set(self) -> bool: ...
    def wait(self, timeout: float | None = None) -> bool: ...


class WeightRelay:
    """One source, one target. `say` hears of every event, as {"event": ..., ...}."""

    def __init__(
        self,
        source: WeightStore,
        target: WeightStore,
        say: Say = lambda line: None,
        *,
        streams: int = STREAMS,
        look_s: float = LOOK_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Takes the target over. Raises ForeignChain where it holds what no relay of this source has put there, BadStore."""
        self.source, self.target, self._say = source, target, say
        self.crossed = RelayTraffic()
        self._clock, self._look_s = clock, look_s
        self._looked_s = -look_s
        self._streams = streams
        self._index = StoreIndex()  # the source's, as it was last seen
        self._tag: str | None = None
        self._broken: dict[IndexEntry, WeightsError] = {}
        self._whole: set[IndexEntry] = set()  # copied, and not named by the target's index yet
        self._there: set[str] = set()  # objects of the target that were checked or written
        self._gave_way = False
        self._wedged_at: int | None = None
        self._wanted: set[str] | None = None  # folders that no sweep may take; None: not known yet
        claim_target(target.bucket, source.url)
        self._writer = StoreWriter(target, lambda: self._wanted)
        self._drop_damaged()

    @property
    def newest(self) -> int | None:
        """The newest version that the target leads to."""
        return self._writer.index.newest

    def once(self) -> int:
        """Copies until nothing is missing; the newest version of both. Raises Unreachable or the error of the file that prevents it."""
        while self.advance():
            pass
        if self.newest is None or self.newest != self._index.newest:
            broken_error = next(iter(self._broken.values()), None)
            raise broken_error or Unreachable(
                f"{self.source.url} holds no way to version {self._index.newest}; it may heal by an anchor"
            )
        return self.newest

    def follow(self, stop: Stop, poll_s: float = POLL_S) -> None:
        """Copies whatever comes, until `stop`; waits for a source or target that is silent. Raises Overtaken, ForeignChain."""
        pause_s, silent_s = poll_s, None
        while not stop.is_set():
            try:
                busy = self.advance()
            except (BadStore, CorruptShard, OSError) as error:
                if silent_s is None:
                    silent_s = self._clock()
                    self._say({"event": "waits", "reason": str(error)})
                pause_s = min(MOST_PAUSE_S, 2 * pause_s)
                stop.wait(pause_s)
                continue
            if silent_s is not None:
                self._say({"event": "goes_on", "after_s": round(self._clock() - silent_s, 1)})
            pause_s, silent_s = poll_s, None
            if not busy:
                stop.wait(poll_s)

    def advance(self) -> bool:
        """Copies one anchor or delta, the most urgent; False where nothing is to be done now."""
        self._look()
        todo = copies(self._index, self._writer.index, self._whole, self._broken)
        self._wanted = {entry.name for entry in (*(todo.first or ()), *todo.later)}
        self._tell_wedged(todo)
        entry = next(iter((*(todo.first or ()), *todo.later)), None)
        if entry is None:
            if self._index.entries and kept_entries(self._index, self._writer.index) != self._writer.index.entries:
                self._commit(None)
            return False
        try:
            self._copy(entry, urgent=entry in (todo.first or ()))
        except _Dropped:
            self._say({"event": "passes_by", "name": entry.name, "newest": self._index.newest})
        except MissingShard:  # retired under our feet, or an index that runs ahead of its objects
            if not self._look():
                self._broken[entry] = MissingShard(
                    f"{entry.name}: an object that the index leads to is not in {self.source.url}"
                )
        except WeightsError as error:
            if isinstance(error, BadStore):
                raise
            self._broken[entry] = error
            self._say({"event": "broken", "name": entry.name, "reason": str(error)})
        return True

    def _copy(self, entry: IndexEntry, urgent: bool) -> None:
        began_s, before = self._clock(), replace(self.crossed)
        manifest, data = self._manifest(entry)
        left = entry.bytes
        for number, shard in enumerate(manifest.shards):
            key = f"{manifest.name}/{shard.file}"
            if key not in self._there and not self._holds(manifest, number):
                self._stay(entry, left, urgent)
                self.target.bucket.put(key, self._fetched(manifest, number))
            self._there.add(key)
            left -= shard.bytes
        self.target.bucket.put(entry.manifest_key, data)
        self._gave_way = False
        self._whole.add(entry)
        self._commit(entry)
        self._say(
            {
                "event": "copied",
                "name": entry.name,
                "version": entry.version,
                "newest": self._index.newest,
                "bytes": self.crossed.bytes - before.bytes,
                "shard_bytes": self.crossed.shard_bytes - before.shard_bytes,
                "seconds": round(self._clock() - began_s, 3),
            }
        )

    def _stay(self, entry: IndexEntry, left: int, urgent: bool) -> None:
        """Raises _Dropped where a newer index has something more urgent, or passes the entry by."""
        if self._clock() - self._looked_s < self._look_s or not self._look():
            return
        todo = copies(self._index, self._writer.index, self._whole, self._broken)
        if entry not in self._index.entries or (not urgent and todo.first):
            raise _Dropped
        if urgent and entry not in (todo.first or ()) and gives_way(left, entry.bytes, self._gave_way):
            self._gave_way = True
            raise _Dropped

    def _look(self) -> bool:
        """Reads the source's index; whether it is another one than before. An empty one tells of nothing: the source is not there yet, or
        not any more, and what the target has stays."""
        try:
            found = self.source.bucket.news(INDEX, self._tag)
        except MissingShard:
            found = None
        self._looked_s = self._clock()
        if found is None:
            return False
        data, tag = found
        self.crossed.bytes += len(data)
        index = StoreIndex.from_json(data, f"{self.source.url}/{INDEX}")
        self._tag = tag
        if not index.entries or (index.writer, index.serial) == (self._index.writer, self._index.serial):
            return False
        self._broken.clear()  # an anchor may have healed them
        self._whole &= set(index.entries)
        self._index = index
        return True

    def _commit(self, copied: IndexEntry | None) -> None:
        """The target's index names what it has of the source's."""
        entries = kept_entries(self._index, self._writer.index, copied)
        if copied is not None and copied not in entries:
            return  # retired while it was copied
        self._writer.commit(replace(self._writer.index, entries=entries))
        self._whole -= set(entries)

    def _manifest(self, entry: IndexEntry) -> tuple[WeightManifest, bytes]:
        try:
            data = self.target.bucket.get(entry.manifest_key)[0]
            return WeightStore.check_manifest(entry, data), data
        except (MissingShard, CorruptShard):
            data = self.source.bucket.get(entry.manifest_key)[0]
        self.crossed.bytes += len(data)
        return WeightStore.check_manifest(entry, data), data

    def _fetched(self, manifest: WeightManifest, number: int) -> bytes:
        """A shard of the source, checked. Raises CorruptShard where it is broken there."""
        shard = manifest.shards[number]
        key = f"{manifest.name}/{shard.file}"
        try:
            manifest.check_shard(number, blob := self._fetch(key, shard.bytes))
        except CorruptShard:  # there, or on the way
            manifest.check_shard(number, blob := self._fetch(key, shard.bytes))
        return blob

    def _fetch(self, key: str, size: int) -> bytes:
        """An object of the source, in parts side by side."""
        part = min(MOST_PART, max(LEAST_PART, -(-size // self._streams)))
        starts = range(0, size, part)
        with Workers(min(self._streams, max(1, len(starts)))) as workers:
            parts = list(workers.map(lambda at: self.source.bucket.part(key, at, min(size, at + part)), starts))
        blob = b"".join(parts)
        self.crossed.bytes += len(blob)
        self.crossed.shard_bytes += len(blob)
        self.crossed.shards += 1
        return blob

    def _holds(self, manifest: WeightManifest, number: int) -> bool:
        """Whether the target has this shard, whole."""
        try:
            manifest.check_shard(number, self.target.shard(manifest, number))
        except (MissingShard, CorruptShard):
            return False
        return True

    def _drop_damaged(self) -> None:
        """What an earlier life left and is broken there is not named any more, and so is copied again."""
        index = self._writer.index
        sound = tuple(entry for entry in index.entries if self._sound(entry))
        if sound != index.entries:
            self._say({"event": "damaged", "names": [entry.name for entry in index.entries if entry not in sound]})
            self._writer.commit(replace(index, entries=sound))

    def _sound(self, entry: IndexEntry) -> bool:
        try:
            manifest = self.target.manifest(entry)
        except (MissingShard, CorruptShard):
            return False
        return all(self._holds(manifest, number) for number in range(len(manifest.shards)))

    def _tell_wedged(self, todo: Copies) -> None:
        """Once for each version to which no way leads."""
        if todo.first is None and self._wedged_at != self._index.newest:
            self._wedged_at = self._index.newest
            self._say({"event": "wedged", "newest": self._index.newest, "held": self.newest})


def claim_target(target: ObjectBucket, source_url: str) -> None:
    """Makes the target this source's. Raises ForeignChain where it is another's, or was written by no relay."""
    owner = json.dumps({"from": source_url}).encode()
    try:
        found = target.get(OWNER)[0]
    except MissingShard:
        if WeightStore(target).index().entries:
            raise ForeignChain(
                f"{target.url} holds weights that no relay of {source_url} has put there: give the relay an empty place of its own"
            ) from None
        target.put(OWNER, owner)
        return
    if found != owner:
        raise ForeignChain(
            f"{target.url} belongs to a relay of {found.decode(errors='replace')[:200]}, not of {source_url}: give this one an empty place, "
            f"or remove {OWNER} there if the source has moved"
        )
