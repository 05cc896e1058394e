"""Promise 7, the codec: the output equals the input, bit for bit, or an error that names the culprit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from etude.learn.weights.codec import decode, encode, pack, unpack
from etude.learn.weights.errors import CorruptShard, CorruptTensor, ForeignFormat, LayoutMismatch, WrongBase
from etude.learn.weights.state import bits, state_digest
from etude.learn.weights.store import WeightManifest

DTYPES = [
    torch.float32,
    torch.bfloat16,
    torch.float16,
    torch.float64,
    torch.float8_e4m3fn,
    torch.uint8,
    torch.int64,
    torch.complex128,
    torch.bool,
]
# Bit patterns that a codec working on values would lose: quiet and signalling NaNs with payloads, -0.0, denormals, infinities.
ODD_BITS = [0x7FC00001, 0xFFC12345, 0x7F800001, 0x80000000, 0x00000001, 0x807FFFFF, 0x7F800000, 0xFF800000]


def encoded(state: dict[str, Tensor], **options: Any) -> tuple[WeightManifest, list[bytes]]:
    """The manifest and the shards in its order."""
    blobs: dict[str, bytes] = {}
    manifest = encode(state, lambda record, blob: blobs.__setitem__(record.file, blob), **options)
    return manifest, [blobs[shard.file] for shard in manifest.shards]


def from_bytes(data: bytes, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
    tensor = torch.empty(shape, dtype=dtype)
    bits(tensor)[:] = np.frombuffer(data, np.uint8)
    return tensor


@st.composite
def two_states(draw: st.DrawFn) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """A base and a successor of the same layout, of arbitrary bits, some tensors unchanged."""
    base, new = {}, {}
    for number in range(draw(st.integers(1, 5))):
        dtype = draw(st.sampled_from(DTYPES))
        shape = tuple(draw(st.lists(st.integers(0, 4), max_size=3)))
        size = int(np.prod(shape, dtype=int)) * dtype.itemsize
        old = draw(st.binary(min_size=size, max_size=size))
        changed = draw(st.booleans())
        base[f"t{number}"] = from_bytes(old, dtype, shape)
        new[f"t{number}"] = from_bytes(draw(st.binary(min_size=size, max_size=size)) if changed else old, dtype, shape)
    return base, new


def same_bits(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    layout = [(n, t.dtype, t.shape) for n, t in sorted(a.items())] == [
        (n, t.dtype, t.shape) for n, t in sorted(b.items())
    ]
    return layout and all(bits(a[name]).tobytes() == bits(b[name]).tobytes() for name in a)


@settings(max_examples=150, deadline=None)
@given(two_states(), st.integers(1, 40), st.sampled_from([1, 3]))
def test_delta_and_anchor_restore_every_bit_in_both_directions(
    states: tuple[dict[str, Tensor], dict[str, Tensor]], shard_bytes: int, workers: int
) -> None:
    base, new = states
    manifest, blobs = encoded(new, version=2, base=base, base_version=1, shard_bytes=shard_bytes, workers=workers)
    manifest = WeightManifest.from_json(manifest.to_json())
    assert same_bits(decode(manifest, blobs.__getitem__, base, workers=workers), new)
    assert same_bits(decode(manifest, blobs.__getitem__, new, rewind=True), base)
    anchor, whole = encoded(new, version=2, shard_bytes=shard_bytes)
    assert same_bits(decode(anchor, whole.__getitem__), new)
    assert manifest.digest == anchor.digest == state_digest(new)


def test_nan_payloads_negative_zero_and_denormals_survive() -> None:
    odd = torch.from_numpy(np.array(ODD_BITS, np.uint32).view(np.float32))
    base = {"w": torch.zeros(len(ODD_BITS))}
    manifest, blobs = encoded({"w": odd}, version=1, base=base, base_version=0)
    out = decode(manifest, blobs.__getitem__, base)["w"]
    assert out.numpy().view(np.uint32).tolist() == ODD_BITS


def test_zero_and_negative_zero_are_different_states() -> None:
    assert state_digest({"w": torch.tensor([0.0])}) != state_digest({"w": torch.tensor([-0.0])})


def test_unchanged_tensors_cost_nothing_and_are_shared() -> None:
    base = {"same": torch.randn(1000), "moved": torch.randn(3)}
    new = {"same": base["same"].clone(), "moved": base["moved"] + 1}
    manifest, blobs = encoded(new, version=1, base=base, base_version=0)
    assert [record.name for record in manifest.changed] == ["moved"]
    assert manifest.bytes < 150
    assert decode(manifest, blobs.__getitem__, base)["same"] is base["same"]


def test_decode_never_writes_to_its_base() -> None:
    base = {"w": torch.randn(50)}
    before = base["w"].clone()
    manifest, blobs = encoded({"w": base["w"] * 2}, version=1, base=base, base_version=0)
    decode(manifest, blobs.__getitem__, base)
    assert torch.equal(base["w"], before)


def test_noncontiguous_and_scalar_tensors_encode() -> None:
    state = {"t": torch.randn(4, 6).t(), "s": torch.tensor(3.5)}
    manifest, blobs = encoded(state, version=0)
    assert same_bits(decode(manifest, blobs.__getitem__), state)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_flipped_bit_of_a_shard_is_refused_by_name(data: st.DataObject) -> None:
    base = {"a": torch.arange(40.0), "b": torch.arange(30.0).sqrt()}
    new = {name: tensor + 0.1 for name, tensor in base.items()}
    manifest, blobs = encoded(new, version=7, base=base, base_version=6, shard_bytes=100)
    shard = data.draw(st.integers(0, len(blobs) - 1))
    at = data.draw(st.integers(0, len(blobs[shard]) * 8 - 1))
    broken = bytearray(blobs[shard])
    broken[at // 8] ^= 1 << (at % 8)
    damaged = [*blobs[:shard], bytes(broken), *blobs[shard + 1 :]]
    with pytest.raises(CorruptShard, match=f"delta-7/{manifest.shards[shard].file}"):
        decode(manifest, damaged.__getitem__, base)


def test_truncated_shard_is_refused() -> None:
    manifest, blobs = encoded({"w": torch.randn(100)}, version=0)
    with pytest.raises(CorruptShard, match="anchor-0/shard-00000-"):
        decode(manifest, lambda i: blobs[i][:-1])


def test_wrong_base_is_refused_even_if_one_bit_differs() -> None:
    base = {"a": torch.zeros(8), "b": torch.ones(8)}
    new = {"a": torch.ones(8), "b": base["b"]}
    manifest, blobs = encoded(new, version=5, base=base, base_version=4)
    wrong = {"a": base["a"], "b": torch.tensor([1.0] * 7 + [1.0000001])}  # in a tensor that the delta leaves alone
    with pytest.raises(WrongBase, match="not version 4"):
        decode(manifest, blobs.__getitem__, wrong)
    with pytest.raises(WrongBase, match="not version 5"):
        decode(manifest, blobs.__getitem__, base, rewind=True)
    with pytest.raises(WrongBase, match="none is at hand"):
        decode(manifest, blobs.__getitem__)


def test_other_layouts_are_refused_by_the_tensor_at_fault() -> None:
    base = {"w": torch.zeros(4)}
    manifest, blobs = encoded({"w": torch.ones(4)}, version=1, base=base, base_version=0)
    for other in ({"w": torch.zeros(5)}, {"w": torch.zeros(4, dtype=torch.float64)}, {"v": torch.zeros(4)}, {}):
        with pytest.raises(LayoutMismatch, match="'w'|'v'"):
            decode(manifest, blobs.__getitem__, other)
        with pytest.raises(LayoutMismatch):
            encoded(other, version=1, base=base, base_version=0)


def test_manifest_that_contradicts_itself_is_refused() -> None:
    manifest, _ = encoded({"w": torch.zeros(4)}, version=1)
    for text in ("", "[]", '{"format": 2}', "{}"):
        with pytest.raises(CorruptShard):
            WeightManifest.from_json(text)
    for number in (1, 3):
        with pytest.raises(ForeignFormat, match=f"of format {number}, this reads format 2"):
            WeightManifest.from_json(manifest.to_json().replace('"format":2', f'"format":{number}'))
    record = manifest.tensors[0].digest
    with pytest.raises(CorruptShard, match="contradicts"):
        WeightManifest.from_json(manifest.to_json().replace(record, "0" * 32, 1))


def test_swapped_shards_of_right_checksums_do_not_pass() -> None:
    one, blob_one = encoded({"w": torch.ones(8)}, version=1)
    two, _ = encoded({"w": torch.full((8,), 2.0)}, version=2)
    forged = WeightManifest(**{**one.__dict__, "tensors": two.tensors, "digest": two.digest})
    with pytest.raises(CorruptTensor, match="w came out different"):
        decode(forged, blob_one.__getitem__)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 8), st.data())
def test_planes_invert(item_bytes: int, data: st.DataObject) -> None:
    elements = data.draw(st.integers(0, 50))
    raw = np.frombuffer(data.draw(st.binary(min_size=item_bytes * elements, max_size=item_bytes * elements)), np.uint8)
    assert unpack(pack(raw, item_bytes), elements).tobytes() == raw.tobytes()


def test_a_small_step_in_bf16_makes_a_small_delta() -> None:
    """The published setting (Composer 2 technical report): almost all bf16 weights stay equal in one RL step, so the delta is far
    below a tenth of the copy."""
    generator = torch.Generator().manual_seed(0)
    master = torch.randn(200_000, generator=generator) * 0.02
    step = 1e-6 * torch.randn(200_000, generator=generator).sign()
    base, new = {"w": master.bfloat16()}, {"w": (master + step).bfloat16()}
    delta, _ = encoded(new, version=1, base=base, base_version=0)
    anchor, _ = encoded(new, version=1)
    print(f"bf16 delta / anchor = {delta.bytes / anchor.bytes:.3f}")
    assert delta.bytes < 0.1 * anchor.bytes
