"""A state of a model, as tensors by name: its bits and digest, where each tensor lies, and whether all its numbers are finite."""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch
import xxhash
from torch import Tensor

# The identity of a state: XXH3-128 over every tensor's bits, sha256 over the table of those. Values are never compared as
# numbers, so NaN payloads, -0.0 and denormals count like any other bits (promise 7).
#
# Two hashes, for two dangers. What crosses the wire (manifests, shards, the table) is checked by sha256: the index names a
# manifest by it, the manifest its shards, so a writer of objects without the index can't pass for the sender. What comes
# out of base and shards is then determined; its digest only has to notice accidents (a wrong base, a fault of the codec or of
# memory), over all bytes of the state instead of the few that moved. There sha256 would cost more than all else together:
# 1.8 GB/s on a core with SHA extensions and a third of that without, BLAKE3 3.9 GB/s, XXH3 16 GB/s (docs/weights.md).


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


# Weights that an engine takes are finite numbers: a NaN would spread to every token that is computed after it.


class NotFinite(ValueError):
    """Weights hold NaN or infinity; the message names the tensor."""


def require_finite(state: State, whose: str) -> None:
    """Raises NotFinite, naming the first tensor of `state` that is not finite, and how many there are."""
    odd = [
        name
        for name, tensor in state.items()
        if tensor.is_floating_point() and tensor.numel() and not all(bound.isfinite() for bound in tensor.aminmax())
    ]
    if odd:
        more = f" and {len(odd) - 1} more tensors" if len(odd) > 1 else ""
        raise NotFinite(
            f"{whose}: {odd[0]}{more} hold NaN or infinity; they are not loaded, and the former weights stay in use"
        )


# Elements wider than eight bytes (complex128) are taken as several.
WIDEST = 8
# Where tensors of one piece of memory begin: a cache line, which is also as far as torch aligns its own.
ALIGNED = 64


# Where each tensor lies. All tensors of one element width, in the order of their names, form a *lane*; shards are cuts of
# lanes, of equal size whatever the tensors' sizes are. Pure: both sides derive the same layout from the table of tensors.


@dataclass(frozen=True)
class Cut:
    """`elements` elements of `width` bytes each, from element `first` of their lane on."""

    width: int
    first: int
    elements: int


@dataclass(frozen=True)
class Piece:
    """The part of a cut that lies in one tensor: elements start .. start + elements of it, `at` elements into the cut."""

    name: str
    start: int
    elements: int
    at: int

    @property
    def of_tensor(self) -> slice:
        return slice(self.start, self.start + self.elements)

    @property
    def of_cut(self) -> slice:
        return slice(self.at, self.at + self.elements)


class Layout:
    """The lanes of a table of (name, dtype, shape)."""

    def __init__(self, rows: Iterable[tuple[str, str, tuple[int, ...]]]) -> None:
        self._names: dict[int, list[str]] = {}  # by width
        self._starts: dict[int, list[int]] = {}  # first element of each tensor within its lane, and the lane's end
        for name, dtype, shape in sorted(rows):
            item = getattr(torch, dtype).itemsize
            width = min(item, WIDEST)
            count = int(np.prod(shape, dtype=np.int64)) * item // width
            if count:
                starts = self._starts.setdefault(width, [0])
                self._names.setdefault(width, []).append(name)
                starts.append(starts[-1] + count)

    def cuts(self, shard_bytes: int) -> list[Cut]:
        """Every lane cut into pieces of at most `shard_bytes` (at least one element), in order."""
        cuts = []
        for width, starts in sorted(self._starts.items()):
            size, end = max(shard_bytes // width, 1), starts[-1]
            cuts += [Cut(width, first, min(size, end - first)) for first in range(0, end, size)]
        return cuts

    def pieces(self, cut: Cut) -> Iterator[Piece]:
        """The cut's parts, tensor after tensor. Raises ValueError if the lane is not that long."""
        starts, names = self._starts.get(cut.width, [0]), self._names.get(cut.width, [])
        at, end = cut.first, cut.first + cut.elements
        if not 0 <= at < end <= starts[-1]:
            raise ValueError(f"elements {at} to {end} of a lane of {starts[-1]} ({cut.width} bytes wide)")
        number = bisect_right(starts, at) - 1
        while at < end:
            stop = min(end, starts[number + 1])
            yield Piece(names[number], at - starts[number], stop - at, at - cut.first)
            at, number = stop, number + 1


def elements(tensor: Tensor) -> np.ndarray:
    """The tensor's bits as unsigned integers of its width in a lane. Shares memory with a contiguous CPU tensor."""
    return bits(tensor).view(f"u{min(tensor.element_size(), WIDEST)}")


def blanks(likes: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Uninitialised CPU tensors of these forms, in one piece of memory, which lives as long as any of them.

    One piece, and through numpy, which asks for huge pages: first touch is most of what applying a delta costs, and so runs
    at 8 GB/s instead of 1.4 with an allocation by torch for each tensor.
    """
    sizes = {name: like.numel() * like.element_size() for name, like in likes.items()}
    memory = np.empty(sum(-(-size // ALIGNED) * ALIGNED for size in sizes.values()), np.uint8)
    made, at = {}, 0
    for name, like in likes.items():
        if sizes[name]:
            made[name] = torch.from_numpy(memory[at : at + sizes[name]]).view(like.dtype).reshape(like.shape)
        else:
            made[name] = torch.empty(like.shape, dtype=like.dtype)
        at += -(-sizes[name] // ALIGNED) * ALIGNED
    return made


def copy_state(state: State) -> dict[str, Tensor]:
    """A copy on the CPU that nothing else writes to."""
    copy = blanks(state)
    for name, tensor in state.items():
        copy[name].copy_(tensor.detach())
    return copy
