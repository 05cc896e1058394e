"""Trainer ranks as learning code sees them: sums of gradients and small exchanges, every rank in the same order of calls.

A sum adds rank 0's part, then rank 1's, and so on, whatever the network does; so a batch gives the same bits whenever as many ranks
train it, and exact resume holds (promise 6). Another number of ranks adds in another order and agrees to rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor


class RanksDiverged(Exception):
    """The ranks hold different weights after the same step: another machine, library or thread count on one of them."""


class Ranks(Protocol):
    """The group that this process is rank `rank` of. Every call is a meeting: all ranks make it, or all get RankLost."""

    rank: int
    size: int

    def total(self, tensors: Sequence[Tensor]) -> None:
        """Each tensor, in place, becomes its sum over the ranks; shapes and dtypes are the same on all."""
        ...

    def gather(self, value: Any) -> list[Any]:
        """Everyone's `value`, by rank. Tensors, numbers, strings, lists, dicts and None."""
        ...


class SingleRank:
    """One process trains."""

    rank, size = 0, 1

    def total(self, tensors: Sequence[Tensor]) -> None:
        pass

    def gather(self, value: Any) -> list[Any]:
        return [value]


ALONE = SingleRank()


def sum_gradients(params: Sequence[Tensor], ranks: Ranks) -> None:
    """Every gradient becomes its sum over the ranks. One that no rank has stays None, and Adam's moments as they are."""
    if ranks.size == 1:
        return
    held = ranks.gather([p.grad is not None for p in params])
    wanted = [p for p, anywhere in zip(params, map(any, zip(*held, strict=True)), strict=True) if anywhere]
    for p in wanted:
        if p.grad is None:
            p.grad = torch.zeros_like(p)
    ranks.total([p.grad for p in wanted if p.grad is not None])
