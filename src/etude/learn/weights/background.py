"""A publisher on a thread of its own: training goes on as soon as the state is copied (promise 7 is the publisher's, unchanged).

    publish -> copied -> (queue) -> compressed and uploaded, shards side by side -> committed -> announced

The thread takes messages in the order in which they were sent, acknowledgements too, so base and versions advance as they would
without it. At most one publication waits behind the one under way: a trainer that is faster than the store waits in `publish`
instead of filling memory with states. A publication that fails stops the ones behind it; its error is raised by the next
call, whichever that is, and by `close`. After that the same version may be published again.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Future

from etude.learn.weights.digest import State
from etude.learn.weights.errors import PublishFailed
from etude.learn.weights.layout import owned
from etude.learn.weights.publisher import Publication, Publisher

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
            copy = owned(state)
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
        copy, future = None if state is None else owned(state), Future()
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
