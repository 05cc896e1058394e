"""Counts what autograd keeps for the backward pass."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn


def kept_bytes(model: nn.Module, work: Callable[[], object]) -> int:
    """Bytes of all storages that `work` leaves for a backward pass, parameters and buffers apart."""
    known = {t.untyped_storage().data_ptr() for t in (*model.parameters(), *model.buffers())}
    kept: dict[int, Tensor] = {}  # holds the tensors, so that no place is used twice

    def note(tensor: Tensor) -> Tensor:
        place = tensor.untyped_storage().data_ptr()
        if place not in known:
            kept.setdefault(place, tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        result = work()
        total = sum(tensor.untyped_storage().nbytes() for tensor in kept.values())
    del result
    return total
