"""Ranks that share rows, as threads of one process: what they exchange meets at a barrier. Without gradients."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from etude.learn.parallel.shared_training import ContextRank


def in_ranks(count: int, work: Callable[[ContextRank], Any], pair: float = 0.5) -> list[Any]:
    """`work` of every rank, each in a thread."""
    meeting, sent = threading.Barrier(count, timeout=30), [torch.empty(0)] * count
    found: list[Any] = [None] * count

    def gather(rank: int, rows: Tensor) -> Tensor:
        sent[rank] = rows
        meeting.wait()
        gathered = torch.cat(sent)
        meeting.wait()
        return gathered

    def run(rank: int) -> None:
        found[rank] = work(ContextRank(rank, count, lambda rows: gather(rank, rows), 10.0, pair))

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found
