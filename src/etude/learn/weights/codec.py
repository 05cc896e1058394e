"""Lossless deltas between two states: the elements that changed, XOR of their bits, zstd (promise 7).

    manifest = encode(new, put, base=base)      new = decode(manifest, read, base)      base = decode(manifest, read, new, rewind=True)

An anchor is the delta from nothing (zeros). XOR is its own inverse, so a delta can be walked both ways: a receiver that is
ahead of the sender's base steps back through the delta it came by, instead of keeping old states. `decode` answers with the
bits that were encoded or raises: every shard is checked by sha256 before use and the whole result by its digest after.
Shards are independent of one another: `workers` threads make or fetch and apply them side by side, each holding one.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from etude.learn.weights.digest import State, digest_of_table, dtype_name, state_digest, tensor_digest
from etude.learn.weights.errors import CorruptShard, CorruptTensor, LayoutMismatch, WrongBase
from etude.learn.weights.layout import Cut, Layout, blanks, elements
from etude.learn.weights.manifest import ShardRecord, TensorRecord, WeightManifest
from etude.learn.weights.shard import apply_shard, encode_shard
from etude.learn.weights.workers import Workers

# Bytes of the state that one shard tells of: large enough that zstd and request overhead vanish, small enough that a
# worker's copies of it are no burden and that many travel at once.
SHARD_BYTES = 64 << 20


def encode(
    state: State,
    put: Callable[[ShardRecord, bytes], None],
    *,
    version: int,
    base: State | None = None,
    base_version: int | None = None,
    base_digest: str | None = None,
    shard_bytes: int = SHARD_BYTES,
    workers: int = 1,
) -> WeightManifest:
    """The anchor of `state`, or its delta from `base`: hands each shard to `put` (from any worker) and gives the manifest.

    `base_digest` spares hashing the base if its digest is known. Raises LayoutMismatch if the two states have different
    tensors, and whatever `put` raises.
    """
    if base is not None:
        _same_layout(state, base)
    layout = Layout(_rows(state))
    encode_cut = _cut_encoder(layout, state, base, put)
    with Workers(workers) as pool:
        cuts = list(enumerate(layout.cuts(shard_bytes)))
        found = [shard for shard in pool.map(encode_cut, cuts) if shard is not None]
        digests = dict(zip(state, pool.map(tensor_digest, list(state.values())), strict=True))
        if base is not None and base_digest is None:
            base_digest = state_digest(base)
    touched = {name for _, names in found for name in names}
    records = tuple(TensorRecord(*row, digests[row[0]], base is None or row[0] in touched) for row in _rows(state))
    return WeightManifest(
        version=version,
        base=base_version if base is not None else None,
        digest=digest_of_table((*record.row, record.digest) for record in records),
        base_digest=base_digest if base is not None else None,
        raw_bytes=sum(t.numel() * t.element_size() for t in state.values()),
        tensors=records,
        shards=tuple(record for record, _ in found),
    )


def _cut_encoder(
    layout: Layout, state: State, base: State | None, put: Callable[[ShardRecord, bytes], None]
) -> Callable[[tuple[int, Cut]], tuple[ShardRecord, set[str]] | None]:
    """A function from a numbered cut to its shard's record and the tensors that changed in it; None where none did."""
    new = {name: elements(tensor) for name, tensor in state.items()}
    old = None if base is None else {name: elements(tensor) for name, tensor in base.items()}

    def encode_cut(numbered: tuple[int, Cut]) -> tuple[ShardRecord, set[str]] | None:
        number, cut = numbered
        pieces = list(layout.pieces(cut))
        fresh = [new[piece.name][piece.of_tensor] for piece in pieces]
        before = None if old is None else [old[piece.name][piece.of_tensor] for piece in pieces]
        found = encode_shard(number, cut, fresh, before)
        if found is None:
            return None
        record, blob, touched = found
        put(record, blob)
        return record, {piece.name for piece, is_touched in zip(pieces, touched, strict=True) if is_touched}

    return encode_cut


def decode(
    manifest: WeightManifest,
    read: Callable[[int], bytes],
    base: State | None = None,
    *,
    rewind: bool = False,
    workers: int = 1,
) -> dict[str, Tensor]:
    """The state the manifest names (or, with `rewind`, the one it was made from, given the one it names as `base`).

    `read(i)`, called from any worker, gives the bytes of shard i. Unchanged tensors are shared with `base`. Raises a
    WeightsError that names the shard or tensor at fault, or what `read` raises; `base` is never written to.
    """
    if manifest.base is None:
        base = None
    elif base is None:
        raise WrongBase(f"{manifest.name} needs version {manifest.base}; none is at hand: start from an anchor")
    else:
        _fits(manifest, base)
    layout = Layout(record.row for record in manifest.tensors)
    with Workers(workers) as pool:
        fresh = blanks({record.name: _form(record) for record in manifest.changed})
        for _ in pool.map(lambda name: _fill(fresh[name], None if base is None else base[name]), list(fresh)):
            pass
        state = {**(base or {}), **fresh}
        for _ in pool.map(_shard_decoder(manifest, read, layout, fresh), range(len(manifest.shards))):
            pass
        digests = dict(zip(state, pool.map(tensor_digest, list(state.values())), strict=True))
    _check(manifest, state, digests, base, rewind)
    return state


def _shard_decoder(
    manifest: WeightManifest, read: Callable[[int], bytes], layout: Layout, fresh: State
) -> Callable[[int], None]:
    """A function that applies shard i to the tensors `fresh` in place. It raises CorruptShard."""
    flat = {name: elements(tensor) for name, tensor in fresh.items()}

    def decode_shard(number: int) -> None:
        blob, record = read(number), manifest.shards[number]
        manifest.check_shard(number, blob)
        try:
            pieces = [piece for piece in layout.pieces(record.cut) if piece.name in flat]
            apply_shard(record, blob, pieces, [flat[piece.name][piece.of_tensor] for piece in pieces])
        except (ValueError, IndexError) as error:
            raise CorruptShard(
                f"{manifest.name}/{record.file}: {error}; manifest and shard do not belong together"
            ) from error

    return decode_shard


def _form(record: TensorRecord) -> Tensor:
    return torch.empty(record.shape, dtype=getattr(torch, record.dtype), device="meta")


def _fill(new: Tensor, old: Tensor | None) -> None:
    """What the XOR goes onto: the base's bits, or zeros before an anchor's."""
    if old is None:
        elements(new).fill(0)
    else:
        np.copyto(elements(new), elements(old))


def _check(manifest: WeightManifest, state: State, digests: dict[str, str], base: State | None, rewind: bool) -> None:
    """The result is bit-identical to what was encoded, or the reason why not is raised."""
    wanted, came_from = manifest.digest, manifest.base_digest
    if rewind:
        wanted, came_from = came_from, wanted
    if digest_of_table((*row, digests[row[0]]) for row in _rows(state)) == wanted:
        return
    if base is not None and state_digest(base) != came_from:
        version = manifest.version if rewind else manifest.base
        raise WrongBase(
            f"{manifest.name}: the state at hand is not version {version}, which the delta connects: start from an anchor"
        )
    wrong = [] if rewind else [record.name for record in manifest.tensors if digests[record.name] != record.digest]
    raise CorruptTensor(f"{manifest.name}: {', '.join(wrong[:3]) or 'the state'} came out different; use an anchor")


def _rows(state: State) -> list[tuple[str, str, tuple[int, ...]]]:
    return [(name, dtype_name(tensor.dtype), tuple(tensor.shape)) for name, tensor in sorted(state.items())]


def _same_layout(new: State, base: State) -> None:
    odd = sorted(set(_rows(new)) ^ set(_rows(base)))
    if odd:
        raise LayoutMismatch(
            f"{odd[0]} is on one side only ({len(odd)} such): it is another model's chain, publish into a new store"
        )


def _fits(manifest: WeightManifest, base: State) -> None:
    odd = sorted({record.row for record in manifest.tensors} ^ set(_rows(base)))
    if odd:
        raise LayoutMismatch(f"{manifest.name}: {odd[0]} is on one side only ({len(odd)} such); start from an anchor")
