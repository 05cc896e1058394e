"""Batches read side by side in processes of their own.

A grammar is native code, and a file may crash it: then the batches that were lost are halved and tried again, until the file that does it
stands alone and is skipped with that reason. So one bad file costs itself, never the index. That holds with several workers; with one (and in
updates too small for more) the files are read in this process.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace

from etude.index.reading import CRASHED, Batch, BatchDone, Outcome, read_batch

PR_SET_PDEATHSIG = 1  # prctl(2)


def cores() -> int:
    """Those this process may use."""
    return len(os.sched_getaffinity(0))


def read_all(batches: Sequence[Batch], workers: int) -> Iterator[BatchDone]:
    """Every batch, in the order they are done; a batch that was halved comes as several."""
    if workers == 1:
        yield from map(read_batch, batches)
        return
    lost = yield from _round(batches, workers)
    while lost:
        halves = [half for batch in lost for half in _halved(batch)]
        lost = []
        for half in halves:  # one at a time: who is alone when the pool breaks did it
            again = yield from _round([half], 1)
            if again and len(half.files) == 1:
                yield BatchDone(half, False, [Outcome(half.files[0], "skipped", CRASHED)])
            else:
                lost += again


def _round(batches: Sequence[Batch], workers: int) -> Generator[BatchDone, None, list[Batch]]:
    """Yields what was done; returns the batches lost with a worker."""
    lost: list[Batch] = []
    others = set(multiprocessing.active_children())
    spawn = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(min(workers, len(batches)) or 1, spawn, _start, (os.getpid(),))
    try:
        waiting: dict[Future[BatchDone], Batch] = {}
        for batch in batches:
            try:
                waiting[pool.submit(read_batch, batch)] = batch
            except (
                BrokenProcessPool,
                OSError,
            ):  # OSError: a worker died, and the pool closed its pipes under this very call
                lost.append(batch)
        for future in as_completed(waiting):
            try:
                yield future.result()
            except BrokenProcessPool:
                lost.append(waiting[future])
    finally:
        pool.shutdown(wait=not lost, cancel_futures=True)
        if lost:  # a worker that was started while the pool broke is in nobody's list, and would be waited for
            for worker in set(multiprocessing.active_children()) - others:
                worker.kill()
            pool.shutdown()
    return lost


def _halved(batch: Batch) -> list[Batch]:
    middle = len(batch.files) // 2
    beside = batch.segment.with_name(f"{batch.segment.stem}b.seg")
    halves = [replace(batch, files=batch.files[:middle]), replace(batch, segment=beside, files=batch.files[middle:])]
    return [half for half in halves if half.files]


def _start(parent: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent, which ends its workers
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before the call
        os._exit(1)
