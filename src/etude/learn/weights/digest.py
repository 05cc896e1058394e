"""The identity of a state: XXH3-128 over every tensor's bits, sha256 over the table of those. Values are never compared as
numbers, so NaN payloads, -0.0 and denormals count like any other bits (promise 7).

Two hashes, for two dangers. What crosses the wire (manifests, shards, the table) is checked by sha256: the index names a
manifest by it, the manifest its shards, so a writer of objects without the index can't pass for the sender. What comes
out of base and shards is then determined; its digest only has to notice accidents (a wrong base, a fault of the codec or of
memory), over all bytes of the state instead of the few that moved. There sha256 would cost more than all else together:
1.8 GB/s on a core with SHA extensions and a third of that without, BLAKE3 3.9 GB/s, XXH3 16 GB/s (docs/weights.md).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

import numpy as np
import torch
import xxhash
from torch import Tensor

State = Mapping[str, Tensor]


def bits(tensor: Tensor) -> np.ndarray:
    """The tensor's bytes in row-major order, (bytes,) uint8. Shares memory with a contiguous CPU tensor."""
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def tensor_digest(tensor: Tensor) -> str:
    """XXH3-128 of the tensor's bits, 32 hexadecimal digits."""
    return xxhash.xxh3_128_hexdigest(bits(tensor).data)


def digest_of_table(rows: Iterable[tuple[str, str, tuple[int, ...], str]]) -> str:
    """sha256 of the table (name, dtype, shape, tensor digest), in the order of names."""
    table = hashlib.sha256()
    for name, dtype, shape, digest in sorted(rows):
        table.update(f"{name}\t{dtype}\t{list(shape)}\t{digest}\n".encode())
    return table.hexdigest()


def state_digest(state: State) -> str:
    """One digest for the whole state: equal exactly if names, types, shapes and (but for a collision) bits are."""
    return digest_of_table((n, dtype_name(t.dtype), tuple(t.shape), tensor_digest(t)) for n, t in state.items())
