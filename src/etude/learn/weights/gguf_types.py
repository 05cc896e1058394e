"""Types of tensors in a GGUF file, and their numbers as fp32: block by block, as llama.cpp's reference defines them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Blocks = NDArray[np.uint8]


@dataclass(frozen=True)
class GgufType:
    """How a type is stored: `elements` numbers in `size` bytes, and the function from rows of blocks to fp32."""

    name: str
    elements: int
    size: int
    dequantize: Callable[[Blocks], Floats]


def _half(blocks: Blocks, start: int) -> Floats:
    return np.ascontiguousarray(blocks[:, start : start + 2]).view(np.float16).astype(np.float32)


def _nibbles(packed: Blocks) -> Floats:
    """The low halves of all bytes of a block, then the high halves."""
    return np.concatenate((packed & 15, packed >> 4), axis=1).astype(np.float32)


def _plain(dtype: type[np.generic]) -> Callable[[Blocks], Floats]:
    return lambda blocks: np.ascontiguousarray(blocks).view(dtype).astype(np.float32)


def _bf16(blocks: Blocks) -> Floats:
    return (np.ascontiguousarray(blocks).view(np.uint16).astype(np.uint32) << 16).view(np.float32)


def _q4_0(blocks: Blocks) -> Floats:
    return _half(blocks, 0) * (_nibbles(blocks[:, 2:]) - 8)


def _q4_1(blocks: Blocks) -> Floats:
    return _half(blocks, 0) * _nibbles(blocks[:, 4:]) + _half(blocks, 2)


def _q8_0(blocks: Blocks) -> Floats:
    return _half(blocks, 0) * np.ascontiguousarray(blocks[:, 2:]).view(np.int8).astype(np.float32)


def _q6_k(blocks: Blocks) -> Floats:
    low, high = blocks[:, :128].reshape(-1, 2, 64), blocks[:, 128:192].reshape(-1, 2, 1, 32)
    fours = np.stack((low & 15, low >> 4), axis=2).reshape(-1, 2, 4, 32)
    twos = (high >> np.array([0, 2, 4, 6], np.uint8).reshape(1, 1, 4, 1)) & 3
    codes = ((fours | (twos << 4)).astype(np.int8) - 32).astype(np.float32).reshape(-1, 16, 16)
    scales = np.ascontiguousarray(blocks[:, 192:208]).view(np.int8).astype(np.float32)
    return ((_half(blocks, 208) * scales)[:, :, None] * codes).reshape(-1, 256)


# By the number in the file.
GGUF_TYPES = {
    0: GgufType("F32", 1, 4, _plain(np.float32)),
    1: GgufType("F16", 1, 2, _plain(np.float16)),
    2: GgufType("Q4_0", 32, 18, _q4_0),
    3: GgufType("Q4_1", 32, 20, _q4_1),
    8: GgufType("Q8_0", 32, 34, _q8_0),
    14: GgufType("Q6_K", 256, 210, _q6_k),
    30: GgufType("BF16", 1, 2, _bf16),
}
# Types that are not read, for the message that refuses them.
OTHER_TYPES = {
    6: "Q5_0", 7: "Q5_1", 9: "Q8_1", 10: "Q2_K", 11: "Q3_K", 12: "Q4_K", 13: "Q5_K", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS",
    18: "IQ3_XXS", 19: "IQ1_S", 20: "IQ4_NL", 21: "IQ3_S", 22: "IQ2_S", 23: "IQ4_XS", 28: "F64", 29: "IQ1_M", 34: "TQ1_0",
    35: "TQ2_0", 39: "MXFP4",
}  # fmt: skip
