"""Batches read side by side in processes of their own.

A worker may die, of memory for instance: then the batch that it held is halved and tried again, until the file that causes it is alone in its
batch and is skipped with that reason. So one bad file costs itself, never the index. With one worker (and in updates too small for more) the
files are read in this process. Grammars, which a text may crash, run in processes of their own in either case (`grammar_process`).

No `ProcessPoolExecutor`: when a worker dies, its own thread closes the pipes that `submit` may just be handing to the next one.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import secrets
import signal
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from multiprocessing.connection import Connection, wait

from etude.agent.code_index.reading import CRASHED, BatchDone, FileBatch, FileOutcome, read_batch

PR_SET_PDEATHSIG = 1  # prctl(2)
Read = Callable[[FileBatch], BatchDone]


def cores() -> int:
    """Those this process may use."""
    return len(os.sched_getaffinity(0))


def read_all(batches: Sequence[FileBatch], workers: int) -> Iterator[BatchDone]:
    """Every batch, in the order they are done; a batch that was halved comes as several. Raises what reading raised."""
    if workers == 1:
        yield from map(read_batch, batches)
        return
    waiting, losses = deque(batches), Counter[str]()
    readers: list[Reader] = []
    try:
        while waiting or any(reader.batch for reader in readers):
            _hand_out(waiting, readers, workers)
            ready = wait([reader.connection for reader in readers if reader.batch])
            for reader in [reader for reader in readers if reader.connection in ready]:
                done = reader.receive()
                if isinstance(done, FileBatch):
                    readers.remove(reader)
                    losses.update(file.path for file in done.files)
                    yield from _given_up(done, losses)
                    waiting.extend(_again(done, losses))
                else:
                    yield done
    finally:
        for reader in readers:
            reader.end()


class Reader:
    """A process that reads one batch at a time: `batch`, or none while it waits."""

    def __init__(self, read: Read) -> None:
        self.batch: FileBatch | None = None
        spawn = multiprocessing.get_context("spawn")
        self.connection, theirs = spawn.Pipe()
        self._process = spawn.Process(target=_serve, args=(theirs, read, os.getpid()), name="index reader", daemon=True)
        self._process.start()
        theirs.close()

    def give(self, batch: FileBatch) -> None:
        self.batch = batch
        try:
            self.connection.send(batch)
        except OSError:
            return  # it died: `receive` finds it so

    def receive(self) -> BatchDone | FileBatch:
        """What it has read; its batch as it was if it died over it."""
        assert self.batch is not None  # one that has nothing to read sends nothing
        batch = self.batch
        try:
            done: BatchDone | BaseException = self.connection.recv()
        except (EOFError, OSError):
            self.end()
            return batch
        self.batch = None
        if isinstance(done, BaseException):
            raise done
        return done

    def end(self) -> None:
        self._process.kill()
        self._process.join()
        self.connection.close()


def _hand_out(waiting: deque[FileBatch], readers: list[Reader], workers: int) -> None:
    """One batch to each reader that has none; readers are made as they are needed."""
    idle = [reader for reader in readers if reader.batch is None]
    while waiting and (idle or len(readers) < workers):
        if not idle:
            idle.append(Reader(read_batch))
            readers.append(idle[-1])
        idle.pop().give(waiting.popleft())


def _given_up(lost: FileBatch, losses: Counter[str]) -> Iterator[BatchDone]:
    """A file that was read alone, and not for the first time, kills its reader."""
    if len(lost.files) == 1 and losses[lost.files[0].path] > 1:
        yield BatchDone(lost, False, [FileOutcome(lost.files[0], "skipped", CRASHED)])


def _again(lost: FileBatch, losses: Counter[str]) -> list[FileBatch]:
    """What of it is still to read, in two; each in a segment of a new name, as what is there of the old one may be torn."""
    if len(lost.files) == 1 and losses[lost.files[0].path] > 1:
        return []
    middle = len(lost.files) // 2
    return [
        replace(lost, segment=lost.segment.with_name(f"{secrets.token_hex(8)}.seg"), files=half)
        for half in (lost.files[:middle], lost.files[middle:])
        if half
    ]


def _serve(connection: Connection, read: Read, parent: int) -> None:
    """A reader's life."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent, which ends its readers
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before the call
        os._exit(1)
    while True:
        batch = connection.recv()
        try:
            done: BatchDone | Exception = read(batch)
        except Exception as error:  # noqa: BLE001 - it is raised again in the parent
            done = error
        connection.send(done)
