"""Ranks of a test: processes of this machine over gloo, each running one function of this module."""

from __future__ import annotations

import os
import socket
import traceback
from collections.abc import Callable
from typing import Any

import torch
import torch.multiprocessing

TIMEOUT_S = 300  # of a busy machine


def run_ranks(count: int, work: Callable[..., Any], *given: Any) -> list[Any]:
    """What `work(*given)` returns in each of `count` processes with a default group. Raises RuntimeError with the first rank's traceback."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    spawn, started = torch.multiprocessing.get_context("spawn"), []
    for rank in range(count):
        ours, theirs = spawn.Pipe(duplex=False)
        process = spawn.Process(target=_rank, args=(rank, count, port, theirs, work, given))
        process.start()
        theirs.close()
        started.append((process, ours))
    try:
        found = [_answer(ours) for _, ours in started]
    finally:
        for process, _ in started:
            process.join(1)
            process.kill()
    if failed := [text for good, text in found if not good]:
        raise RuntimeError(failed[0])
    return [value for _, value in found]


def _answer(connection: Any) -> tuple[bool, Any]:
    try:
        return connection.recv() if connection.poll(TIMEOUT_S) else (False, f"a rank said nothing in {TIMEOUT_S} s")
    except EOFError:
        return False, "a rank ended before its answer"


def _rank(rank: int, count: int, port: int, answers: Any, work: Callable[..., Any], given: tuple[Any, ...]) -> None:
    from datetime import timedelta

    import torch.distributed as dist

    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.set_num_threads(1)
    try:
        dist.init_process_group("gloo", rank=rank, world_size=count, timeout=timedelta(seconds=TIMEOUT_S))
        answers.send((True, work(*given)))
        dist.destroy_process_group()
    except Exception:  # noqa: BLE001 - shown by the test
        answers.send((False, traceback.format_exc()))
        os._exit(1)
