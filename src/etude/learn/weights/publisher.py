"""The sending side: turns each new state into a delta (now and then an anchor too) and puts it into the store.

The base of the next delta advances only when every live receiver acknowledged (promise 7; `etude.learn.weights.chain`). One
thread at a time (`BackgroundPublisher` puts it on one). A publisher opened on a store that an earlier one left takes it
over and goes on after its newest version; if that can't be read any more, the next publication is an anchor, which heals.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass
from functools import partial

from etude.learn.weights.chain import Chain
from etude.learn.weights.codec import encode
from etude.learn.weights.errors import ForkedChain, PublishFailed, Unreachable, WeightsError
from etude.learn.weights.path import needed
from etude.learn.weights.receiver import Receiver
from etude.learn.weights.state import State, copy_state, state_digest
from etude.learn.weights.store import IndexEntry, StoreIndex, StoreWriter, WeightStore

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
        state = state if copied else copy_state(state)
        plan = self._chain.plan(version)
        entries = list(self._writer.index.entries)
        if plan.base is not None:
            entries.append(self._write(state, version, plan.base))
        if plan.anchor:
            entries.append(self._write(state, version, None))
        held = {*self._chain.held, version}
        kept = {edge for edge in needed([entry.edge for entry in entries], self._keep_anchors, held)}
        self._writer.commit(StoreIndex(tuple(entry for entry in entries if entry.edge in kept)))
        self._chain.on_published(plan)
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


# A publisher on a thread of its own: training goes on as soon as the state is copied (promise 7 is the publisher's, unchanged).
#
#     publish -> copied -> (queue) -> compressed and uploaded, shards side by side -> committed -> announced
#
# The thread takes messages in the order in which they were sent, acknowledgements too, so base and versions advance as they would
# without it. At most one publication waits behind the one under way: a trainer that is faster than the store waits in `publish`
# instead of filling memory with states. A publication that fails stops the ones behind it; its error is raised by the next
# call, whichever that is, and by `close`. After that the same version may be published again.


# States copied and not yet under way.
WAITING = 1


class BackgroundPublisher:
    """Owns a publisher; nothing else may call it meanwhile. Callers may be of one thread or several."""

    def __init__(self, publisher: Publisher, announce: Callable[[Publication], None] | None = None) -> None:
        """`announce` is called on the worker thread when a version is in the store: receivers may fetch it now."""
        self._publisher = publisher
        self._announce = announce
        self._room = threading.Semaphore(WAITING + 1)
        self._tasks: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._failed: PublishFailed | None = None  # not raised to anyone yet
        self._skipping = False  # what was queued behind a failure is not published
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="weights-publish", daemon=True)
        self._thread.start()

    def publish(self, state: State, version: int) -> Future[Publication]:
        """Returns once the state is copied; the future tells what the version cost when it is in the store.

        Raises PublishFailed if an earlier version could not be published; this one is then not taken.
        """
        self._raise_failure()
        self._room.acquire()
        try:
            self._raise_failure()  # while we waited
            copy = copy_state(state)
        except BaseException:
            self._room.release()
            raise
        future: Future[Publication] = Future()
        self._put(lambda: self._publish(copy, version, future))
        return future

    def join(self, receiver: str) -> None:
        self._later(lambda: self._publisher.join(receiver))

    def leave(self, receiver: str) -> None:
        self._later(lambda: self._publisher.leave(receiver))

    def acknowledge(self, receiver: str, version: int) -> None:
        """`receiver` holds `version`."""
        self._later(lambda: self._publisher.acknowledge(receiver, version))

    def heal(self) -> None:
        """Makes the next publication an anchor."""
        self._later(self._publisher.heal)

    def mend(self, version: int, state: State | None = None) -> Future[Publication]:
        """`Publisher.mend`, behind all that was handed over before; what it raises is the future's alone."""
        self._raise_failure()
        copy, future = None if state is None else copy_state(state), Future()
        self._put(lambda: _settle(future, lambda: self._publisher.mend(version, copy)))
        return future

    def flush(self) -> None:
        """Waits until all that was handed over is done. Raises PublishFailed if something could not be published."""
        done = threading.Event()
        self._put(done.set)
        done.wait()
        self._raise_failure()

    def close(self) -> None:
        """Finishes what was handed over and ends the thread. Raises PublishFailed like `flush`; may be called twice."""
        if not self._closed:
            self._closed = True
            self._tasks.put(None)
            self._thread.join()
        self._raise_failure()

    def _later(self, work: Callable[[], None]) -> None:
        self._raise_failure()
        self._put(lambda: self._guarded(work))

    def _put(self, task: Callable[[], None]) -> None:
        if self._closed:
            raise RuntimeError("this publisher is closed; open another on the store")
        self._tasks.put(task)

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            task()

    def _publish(self, copy: State, version: int, future: Future[Publication]) -> None:
        try:
            if self._skipping:
                future.set_exception(CancelledError(f"version {version} waited behind one that failed"))
                return
            published = self._publisher.publish(copy, version, copied=True)
            future.set_result(published)
            if self._announce is not None:
                self._announce(published)
        except Exception as error:  # noqa: BLE001 - whatever it was, it is raised where the trainer meets it
            self._fail(f"version {version} could not be published or announced", error)
            if not future.done():
                future.set_exception(error)
        finally:
            self._room.release()

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001 - as above
            self._fail("the publisher refused a message", error)

    def _fail(self, what: str, error: Exception) -> None:
        failure = PublishFailed(f"{what}: {type(error).__name__}: {error}")
        failure.__cause__ = error
        with self._lock:
            self._failed, self._skipping = self._failed or failure, True

    def _raise_failure(self) -> None:
        with self._lock:
            failed, self._failed = self._failed, None
        if failed is not None:
            self._tasks.put(self._go_on)  # behind all that was queued when it failed
            raise failed

    def _go_on(self) -> None:
        self._skipping = False


def _settle(future: Future[Publication], work: Callable[[], Publication]) -> None:
    try:
        future.set_result(work())
    except Exception as error:  # noqa: BLE001 - it is raised where the future is read
        future.set_exception(error)
