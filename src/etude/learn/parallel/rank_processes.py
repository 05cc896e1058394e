"""Ranks as processes of this machine: the process that starts them is the first rank, and they end with it.

They meet over a file in a folder that only this user can read, and exchange tensors over gloo on loopback, or on the interface that
GLOO_SOCKET_IFNAME names; tensors on GPUs over NCCL. Neither has authentication.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import torch

from etude.core.allocator import forget_preload, preloaded
from etude.core.parent import die_with
from etude.learn.parallel.launched import GLOO, SILENCE, RankLost
from etude.learn.parallel.rank_device import join_group
from etude.learn.parallel.shard import DIST

LEAVE_S = 5.0  # what ranks that have done their work get for ending by themselves
FAULTS_S = 2.0  # what the first rank waits for more of what the others say when one is lost
READY = "ready"


class RankProcess:
    """At its place: number, count, the file where the ranks meet, and the kind of device."""

    def __init__(self, place: tuple[int, int, str, str], work: Callable[..., Any], given: tuple[Any, ...]) -> None:
        self.number, count = place[:2]
        self.fault = ""
        spawn = multiprocessing.get_context("spawn")
        self.connection, theirs = spawn.Pipe(duplex=False)
        threads = max(1, torch.get_num_threads() // count)
        self.process = spawn.Process(
            target=_main, args=(theirs, os.getpid(), threads, place, work, given), name=f"rank-{self.number}"
        )
        with preloaded():
            self.process.start()
        theirs.close()

    def receive(self) -> bool:
        """Whether it says that it is ready; else `fault` says why it is not."""
        try:
            said = self.connection.recv()
        except EOFError:
            self.process.join()
            code = self.process.exitcode or 0
            how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"
            said = f"its process {how}{'; perhaps memory ran out' if code == -signal.SIGKILL else ''}"
        self.fault = "" if said == READY else said
        return said == READY


@contextmanager
def other_ranks(count: int, device: str, work: Callable[..., Any], *given: Any) -> Iterator[None]:
    """Within the block this process is rank 0 of `count`, with a default process group, and `work(*given)` runs in the others. Each has its part of
    this process' threads, and on "cuda" a GPU. Raises RankLost where one of them fails or is killed."""
    own_threads = torch.get_num_threads()
    with tempfile.TemporaryDirectory(prefix="etude-ranks-") as folder:
        meeting, ended = str(Path(folder) / "meeting"), False
        others: list[RankProcess] = []
        try:
            for number in range(1, count):
                others.append(RankProcess((number, count, meeting, device), work, given))
            for rank in others:
                if not rank.receive():
                    raise RankLost(f"rank {rank.number} of {count} could not begin: {rank.fault}")
            _join(0, count, meeting, device)
            torch.set_num_threads(max(1, own_threads // count))
            yield
            ended = True
        except RankLost:
            raise
        except Exception as error:  # gloo's, where a rank is gone, and what became of it
            lost = _first_fault(others)
            alike = type(error) is not RuntimeError and lost is not None and type(error).__name__ in lost.fault
            if lost is not None and not alike:
                raise RankLost(
                    f"rank {lost.number} of {count} is lost: {lost.fault}; what was saved is kept"
                ) from error
            raise
        finally:
            torch.set_num_threads(own_threads)
            _end(others, LEAVE_S if ended else 0.0)


def _first_fault(others: list[RankProcess]) -> RankProcess | None:
    """Of the ranks that have ended, the one for which the others did: a rank whose neighbour is gone fails as well, in gloo."""
    waiting = {rank.connection: rank for rank in others}
    ended: list[RankProcess] = []
    while waiting and (ready := wait(list(waiting), timeout=FAULTS_S)):
        found = [waiting.pop(connection) for connection in ready]  # type: ignore[index]
        ended += [rank for rank in found if not rank.receive()]
    return min(ended, key=lambda rank: GLOO in rank.fault, default=None)


def _end(others: list[RankProcess], leave_s: float) -> None:
    if DIST.is_initialized():
        DIST.destroy_process_group()
    until = time.monotonic() + leave_s
    for rank in others:
        rank.process.join(max(0.0, until - time.monotonic()))
        rank.process.kill()
        rank.process.join()
        rank.connection.close()


def _main(
    connection: Connection,
    parent: int,
    threads: int,
    place: tuple[int, int, str, str],
    work: Callable[..., Any],
    given: Any,
) -> None:
    """The life of a rank that was started."""
    die_with(parent)
    forget_preload()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the first rank is interrupted, and ends the others
    torch.set_num_threads(threads)
    try:
        connection.send(READY)
        _join(*place)
        work(*given)
        DIST.destroy_process_group()
    except Exception as error:  # noqa: BLE001 - the first rank says it
        at = traceback.extract_tb(error.__traceback__)[-1]
        connection.send(f"{type(error).__name__}: {error} ({Path(at.filename).name}:{at.lineno})")
        os._exit(1)


def _join(rank: int, count: int, meeting: str, device: str) -> None:
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    join_group(device, rank, DIST.FileStore(meeting, count), rank, count, SILENCE)
