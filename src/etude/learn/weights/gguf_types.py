"""Types of tensors in a GGUF file, and their numbers as fp32, by llama.cpp's Python package `gguf`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Blocks = NDArray[np.uint8]


@dataclass(frozen=True)
class GgufType:
    """How a type is stored: `elements` numbers in `size` bytes. `number` names it in files."""

    name: str
    number: int
    elements: int
    size: int

    def dequantize(self, blocks: Blocks) -> Floats:
        """The numbers (n, elements) of n blocks (n, size)."""
        from gguf.constants import GGMLQuantizationType
        from gguf.quants import dequantize

        blocks = np.ascontiguousarray(blocks)
        if self.name == "F64":
            return blocks.view(np.float64).astype(np.float32)
        plain = {"F32": np.float32, "F16": np.float16}.get(self.name)
        numbers = blocks.view(plain) if plain else dequantize(blocks, GGMLQuantizationType(self.number))
        return numbers.astype(np.float32, copy=False).reshape(len(blocks), -1)


@cache
def find_type(number: int) -> GgufType | None:
    """The type with this number in files; None where it is not known, or holds no numbers that weights are made of."""
    from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

    try:
        kind = GGMLQuantizationType(number)
        elements, size = GGML_QUANT_SIZES[kind]
        found = GgufType(kind.name, number, elements, size)
        found.dequantize(np.zeros((1, size), np.uint8))
    except (ValueError, KeyError, NotImplementedError):  # the package knows no such number, size, or way back to fp32
        return None
    return found


def type_name(number: int) -> str:
    """For messages: the type's name, or its number where it has none."""
    from gguf.constants import GGMLQuantizationType

    return next((kind.name for kind in GGMLQuantizationType if kind == number), str(number))
