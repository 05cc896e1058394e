"""A GGUF file: its numbers follow the formats' definitions, and a damaged file gives one line."""

from __future__ import annotations

import struct
import sys
from pathlib import Path

import numpy as np
import pytest

from etude.learn.weights.gguf_file import open_gguf
from etude.learn.weights.gguf_types import find_type
from etude.learn.weights.hf_files import CheckpointError

sys.path.insert(0, str(Path(__file__).parent))
from gguf_lab import llama_metadata, llama_tensors, write_gguf


def half(number: float) -> bytes:
    return np.float16(number).tobytes()


def test_q4_1_is_the_scale_times_the_code_plus_the_least() -> None:
    codes = [(7 * i) % 16 for i in range(32)]
    packed = bytes(codes[i] | codes[i + 16] << 4 for i in range(16))
    block = np.frombuffer(half(0.5) + half(-2.0) + packed, np.uint8).reshape(1, -1)
    assert find_type(3).dequantize(block).tolist() == [[0.5 * code - 2.0 for code in codes]]


def test_q4_0_is_the_scale_times_the_code_less_eight() -> None:
    codes = [(5 * i) % 16 for i in range(32)]
    packed = bytes(codes[i] | codes[i + 16] << 4 for i in range(16))
    block = np.frombuffer(half(0.25) + packed, np.uint8).reshape(1, -1)
    assert find_type(2).dequantize(block).tolist() == [[0.25 * (code - 8) for code in codes]]


def test_q8_0_is_the_scale_times_a_signed_byte() -> None:
    codes = [i * 8 - 128 for i in range(32)]
    block = np.frombuffer(half(0.125) + struct.pack("32b", *codes), np.uint8).reshape(1, -1)
    assert find_type(8).dequantize(block).tolist() == [[0.125 * code for code in codes]]


@pytest.mark.parametrize(("number", "size"), [(2, 18), (3, 20), (8, 34), (12, 144), (13, 176), (14, 210)])
def test_blocks_are_read_as_transformers_reads_them(number: int, size: int) -> None:
    torch = pytest.importorskip("torch")
    oracle = pytest.importorskip("transformers.integrations.gguf.dequant")
    raw = np.random.default_rng(number).integers(0, 256, (64, size), np.uint8)
    raw[:, {14: 209}.get(number, 1)] &= 0x3B  # scales that are finite
    if number in (3, 12, 13):
        raw[:, 3] &= 0x3B
    theirs = oracle.dequantize(torch.from_numpy(raw.copy()), number, torch.float32).numpy().reshape(64, -1)
    assert np.array_equal(find_type(number).dequantize(raw), theirs)


def test_bf16_is_the_upper_half_of_fp32() -> None:
    bits = np.array([[0x3F80, 0xC000]], np.uint16).view(np.uint8)
    assert find_type(30).dequantize(bits).tolist() == [[1.0, -2.0]]


@pytest.fixture
def sound(tmp_path: Path) -> Path:
    path = tmp_path / "model.gguf"
    write_gguf(path, llama_metadata(), llama_tensors())
    return path


def test_a_file_that_is_cut_anywhere_is_refused(sound: Path) -> None:
    raw = sound.read_bytes()
    for size in (0, 3, 10, 23, 40, 200, 700, len(raw) // 2, len(raw) - 200):
        sound.write_bytes(raw[:size])
        with pytest.raises(CheckpointError, match="truncated|no GGUF|empty"), open_gguf(sound):
            pass


@pytest.mark.parametrize("place", [8, 16, 24])
def test_a_huge_count_takes_no_memory(sound: Path, place: int) -> None:
    raw = bytearray(sound.read_bytes())
    raw[place : place + 8] = struct.pack("<Q", 1 << 62)
    sound.write_bytes(raw)
    with pytest.raises(CheckpointError, match="truncated"), open_gguf(sound):
        pass


@pytest.mark.parametrize(("number", "name"), [(24, "I8"), (15, "Q8_K"), (77, "77")])
def test_a_type_that_is_not_known_is_named(tmp_path: Path, number: int, name: str) -> None:
    path = tmp_path / "model.gguf"
    write_gguf(path, {}, {"output_norm.weight": (number, (256,), b"\0" * 256)})
    with pytest.raises(CheckpointError, match=f"has the type {name}, which can't be read back"), open_gguf(path):
        pass


def test_numbers_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    write_gguf(path, {}, {"output_norm.weight": (0, (1,), struct.pack("<f", float("nan")))})
    with open_gguf(path) as file, pytest.raises(CheckpointError, match="not finite"):
        file.read("output_norm.weight")
