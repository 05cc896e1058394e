"""What a training loop asks of the ranks that train one model together, and the answers of one process (`split_model.py` has those of several).

The loop is the same on every rank: all of them draw the same batches, take a part of each, and see the same loss, norm and share of the run that is
done, so that they decide alike. What leaves the ranks (training states, checkpoints) has the names that one process has.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor, nn

T = TypeVar("T")
OptimizedParameters = Sequence[Sequence[Tensor]]  # of each optimizer of a loop, in the order of its state


def without_weights(holder: T, model: nn.Module) -> T:
    """A copy of `model`, or of what holds it, with the model's parameters on the meta device; buffers keep their values."""
    meta = {id(p): nn.Parameter(p.detach().to("meta"), requires_grad=p.requires_grad) for p in model.parameters()}
    return copy.deepcopy(holder, dict[int, Any](meta))


@dataclass(frozen=True)
class ContextRank:
    """This rank among the `ranks` that share the tokens of the same rows. `gather` makes of the ranks' tensors (n, width), of one n, all of them
    (ranks * n, width), with gradients. A token costs `token`, and `pair` for each that it sees."""

    rank: int = 0
    ranks: int = 1
    gather: Callable[[Tensor], Tensor] = lambda tensor: tensor
    token: float = 1.0
    pair: float = 0.0


class SharedTraining(Protocol):
    """Every call is made by all ranks, in the same order."""

    rank: int
    ranks: int
    context: ContextRank

    def total(self, value: Tensor) -> Tensor:
        """The sum over the ranks."""
        ...

    def same(self, value: Any) -> Any:
        """The first rank's value: tensors, numbers, strings, lists, dicts and None."""
        ...

    def norm(self, parameters: list[Tensor]) -> Tensor | None:
        """The norm of the gradients of these; None: that of the tensors that this process has."""
        ...

    def show(self) -> None:
        """The first rank's model in one process gets the weights as they are now."""
        ...

    def take(self) -> None:
        """The way back: all ranks train on from the weights of that model."""
        ...

    def write(self, path: Path, state: Mapping[str, Any], optimizers: OptimizedParameters) -> None:
        """Puts a training state there, on the disk when the call ends: tensors and plain values, `model` by the names of this rank and `optimizers`
        as their `state_dict`s say; the parameters of each optimizer are given too. Raises OSError, RuntimeError."""
        ...

    def read(self, path: Path, optimizers: OptimizedParameters) -> dict[str, Any]:
        """What one process or any number of ranks wrote, as this rank needs it. Nothing in it is run. Raises
        OSError, RuntimeError and others for a damaged one."""
        ...


class OneProcess:
    """Nothing is shared."""

    rank, ranks, context = 0, 1, ContextRank()

    def total(self, value: Tensor) -> Tensor:
        return value

    def same(self, value: Any) -> Any:
        return value

    def norm(self, parameters: list[Tensor]) -> Tensor | None:
        return None

    def show(self) -> None:
        """The model that is trained is that model."""

    def take(self) -> None:
        """The same."""

    def write(self, path: Path, state: Mapping[str, Any], optimizers: OptimizedParameters = ()) -> None:
        """A file."""
        with path.open("wb") as file:
            torch.save(dict(state), file)
            file.flush()
            os.fsync(file.fileno())

    def read(self, path: Path, optimizers: OptimizedParameters = ()) -> dict[str, Any]:
        if path.is_dir():
            from etude.learn.parallel.rank_states import read_whole

            return read_whole(path)
        return torch.load(path, map_location="cpu", weights_only=True)


ALONE = OneProcess()
