"""A frame of somebody else never takes more memory than was allowed, whatever its header says, and damage is a typed error."""

from __future__ import annotations

import json
import tracemalloc

import numpy as np
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from etude.core.trace.bounded_zstd import BadFrame, decompress
from etude.core.trace.group_file import DamagedGroup, pack_group, unpack_group
from etude.core.trace.segment import Rollout, Segment

BOMB_BYTES = 300 << 20


@pytest.fixture(scope="module", params=[True, False], ids=["size in the header", "no size"])
def bomb(request: pytest.FixtureRequest) -> bytes:
    packer = zstandard.ZstdCompressor(level=1, write_content_size=request.param).compressobj(
        BOMB_BYTES if request.param else -1
    )
    zeros = bytes(1 << 20)
    return b"".join([*(packer.compress(zeros) for _ in range(BOMB_BYTES >> 20)), packer.flush()])


def peak_of(work) -> int:
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_bomb_is_refused_in_little_memory(bomb: bytes) -> None:
    assert len(bomb) < 1 << 20

    def refused() -> None:
        with pytest.raises(BadFrame, match="than the 8,388,608 that belong there"):
            decompress(bomb, 8 << 20)

    assert peak_of(refused) < 32 << 20


def test_a_group_file_that_is_a_bomb_is_damaged(bomb: bytes) -> None:
    def refused() -> None:
        with pytest.raises(DamagedGroup, match="belong there"):
            unpack_group(bomb)

    assert peak_of(refused) < 160 << 20


@given(st.binary(max_size=2000), st.booleans())
def test_what_fits_comes_back_and_one_byte_more_is_refused(data: bytes, sized: bool) -> None:
    packed = zstandard.ZstdCompressor(write_content_size=sized).compress(data)
    assert decompress(packed, len(data)) == data
    if data:
        with pytest.raises(BadFrame):
            decompress(packed, len(data) - 1)


@given(st.binary(max_size=300), st.booleans(), st.data())
def test_of_a_frame_that_is_cut_the_whole_comes_or_an_error(data: bytes, sized: bool, draw: st.DataObject) -> None:
    packed = zstandard.ZstdCompressor(write_content_size=sized).compress(data)
    try:
        assert decompress(packed[: draw.draw(st.integers(0, len(packed) - 1))], 1000) == data
    except BadFrame:
        return


@given(st.binary(max_size=200))
def test_bytes_that_are_no_frame_are_a_typed_error(data: bytes) -> None:
    with pytest.raises(BadFrame):
        decompress(data, 1000)
    with pytest.raises(DamagedGroup):
        unpack_group(data)


def packed(header: object, body: bytes = b"") -> bytes:
    head = header if isinstance(header, bytes) else json.dumps(header).encode()
    return zstandard.ZstdCompressor().compress(len(head).to_bytes(8, "little") + head + body)


IDS, FLOATS = ["<i4", [2]], ["<f4", [2]]
SOUND = {"ids": IDS, "sampled": ["|b1", [2]], "logprobs": FLOATS, "versions": IDS}
BODY = bytes(8 + 2 + 8 + 8)


def group_of(**changes: object) -> list[dict]:
    arrays = {name: value for name, value in (SOUND | changes).items() if value is not None}
    return [{"id": "r", "task_id": "t", "group": 0, "rewards": {}, "counters": {}, "info": {}, "segments": [arrays]}]


def test_the_plain_group_of_these_tests_is_read() -> None:
    assert len(unpack_group(packed(group_of(), BODY))[0].segments[0]) == 2


@pytest.mark.parametrize(
    "header",
    [b"[" * 100_000, b"{", b"3", b"[3]", b"[{}]", b'[{"segments": 3}]', b'{"a": 1}', b"\xff",
     group_of(ids=["O", [2]]), group_of(ids=["<i4", [-2]]), group_of(ids=["<i4", [2**62]]), group_of(ids=["<i4", [2, 2]]),
     group_of(ids=["<i4", ["2"]]), group_of(ids=["no type", [2]]), group_of(ids=3), group_of(ids=None), group_of(other=IDS),
     group_of(ids=["<i4", [1]]), group_of(routes=["|u1", [2]]), group_of(session=["<U4", [2]]), group_of(logprobs=["<i4", [2]])],
    ids=lambda header: str(header)[:60],
)  # fmt: skip
def test_a_header_that_is_no_groups_is_damage(header: object) -> None:
    with pytest.raises(DamagedGroup):
        unpack_group(packed(header, BODY))


def test_a_real_group_of_long_rollouts_packs_less_than_the_bound_allows() -> None:
    tokens = 4_000
    rng = np.random.default_rng(0)
    segment = Segment(
        rng.integers(0, 50_000, tokens).astype(np.int32), np.arange(tokens) > 3_000, rng.normal(size=tokens).astype(np.float32),
        np.full(tokens, 3, np.int32), np.full((tokens, 48, 8), 255, np.uint8),
    )  # fmt: skip
    (again,) = unpack_group(pack_group([Rollout("r", "t", 0, [segment])]))
    assert np.array_equal(again.segments[0].routes, segment.routes)
