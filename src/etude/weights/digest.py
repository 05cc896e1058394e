"""The identity of a state: sha256 over every tensor's bits, and over the table of those. Values are never compared as
numbers, so NaN payloads, -0.0 and denormals count like any other bits (promise 7)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

import numpy as np
import torch
from torch import Tensor

State = Mapping[str, Tensor]


def bits(tensor: Tensor) -> np.ndarray:
    """The tensor's bytes in row-major order, (bytes,) uint8. Shares memory with a contiguous CPU tensor."""
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def tensor_digest(tensor: Tensor) -> str:
    return hashlib.sha256(bits(tensor).data).hexdigest()


def digest_of_table(rows: Iterable[tuple[str, str, tuple[int, ...], str]]) -> str:
    """sha256 of the table (name, dtype, shape, tensor digest), in the order of names."""
    table = hashlib.sha256()
    for name, dtype, shape, digest in sorted(rows):
        table.update(f"{name}\t{dtype}\t{list(shape)}\t{digest}\n".encode())
    return table.hexdigest()


def state_digest(state: State) -> str:
    """One sha256 for the whole state: equal exactly if names, types, shapes and bits are."""
    return digest_of_table((n, dtype_name(t.dtype), tuple(t.shape), tensor_digest(t)) for n, t in state.items())
