"""Reads a GGUF file: metadata at once, tensors one at a time as fp32.

Files come from other people. Every count and offset is checked against the size of the file before memory is taken for it, and a damaged file
raises CheckpointError.
"""

from __future__ import annotations

import math
import mmap
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from etude.learn.weights.gguf_types import Floats, GgufType, find_type, type_name
from etude.learn.weights.hf_files import CheckpointError

_VERSIONS = (2, 3)
# The types of metadata that have a fixed size, as `struct` names them.
_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_TEXT, _LIST = 8, 9
_MOST_DIMENSIONS = 4  # of the format
_DEFAULT_ALIGNMENT = 32


@dataclass(frozen=True)
class GgufTensor:
    """Where a tensor is. `shape` is in the order of PyTorch, `start` counts from the beginning of the file."""

    name: str
    kind: GgufType
    shape: tuple[int, ...]
    start: int

    @property
    def size(self) -> int:
        return math.prod(self.shape) // self.kind.elements * self.kind.size


class GgufFile:
    """An open file."""

    def __init__(self, path: Path, data: mmap.mmap) -> None:
        self.path = path
        self._data = data
        cursor = _Cursor(path, data)
        tensors, values = cursor.read_counts()
        self.metadata: dict[str, Any] = {}
        for _ in range(values):
            key = cursor.text()
            self.metadata[key] = cursor.value()
        found = [cursor.tensor() for _ in range(tensors)]
        self.tensors = self._placed(found, cursor.at)

    def _placed(self, found: list[GgufTensor], end: int) -> dict[str, GgufTensor]:
        """The tensors by name, their starts counted from the beginning of the file."""
        alignment = self.metadata.get("general.alignment", _DEFAULT_ALIGNMENT)
        if type(alignment) is not int or not 0 < alignment <= 1 << 20:
            raise CheckpointError(f"{self.path} has the alignment {alignment!r:.40}; the file is damaged")
        base = -(-end // alignment) * alignment
        tensors: dict[str, GgufTensor] = {}
        for tensor in found:
            placed = GgufTensor(tensor.name, tensor.kind, tensor.shape, base + tensor.start)
            if placed.start + placed.size > len(self._data):
                raise CheckpointError(
                    f"{self.path} ends before its tensor {tensor.name!r:.80} does; the file is truncated: download it again"
                )
            if tensor.name in tensors:
                raise CheckpointError(f"{self.path} has the tensor {tensor.name!r:.80} twice; the file is damaged")
            tensors[tensor.name] = placed
        return tensors

    def read(self, name: str) -> Floats:
        """A tensor as fp32. Raises CheckpointError for a tensor that is not there or that holds NaN or infinity."""
        if name not in self.tensors:
            raise CheckpointError(f"{self.path} lacks the tensor {name}; the file is incomplete")
        tensor = self.tensors[name]
        raw = np.frombuffer(self._data[tensor.start : tensor.start + tensor.size], np.uint8)
        with np.errstate(over="ignore", invalid="ignore"):
            numbers = tensor.kind.dequantize(raw.reshape(-1, tensor.kind.size)).reshape(tensor.shape)
        if not np.isfinite(numbers).all():
            raise CheckpointError(
                f"{self.path}: {name} holds numbers that are not finite (NaN or infinity); the file is damaged"
            )
        return numbers


@contextmanager
def open_gguf(path: Path) -> Iterator[GgufFile]:
    """Opens a file. Raises CheckpointError for a file that is no GGUF file or is damaged, OSError."""
    with open(path, "rb") as file:
        if path.stat().st_size == 0:  # which mmap refuses
            raise CheckpointError(f"{path} is empty; download it again")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            yield GgufFile(path, data)


class _Cursor:
    """Reads the header from the front to the back."""

    def __init__(self, path: Path, data: mmap.mmap) -> None:
        self.path = path
        self.at = 0
        self._data = data

    def read_counts(self) -> tuple[int, int]:
        """The numbers of tensors and of metadata values."""
        if self._data[:4] != b"GGUF":
            raise CheckpointError(f"{self.path} is no GGUF file; give one whose first four bytes are GGUF")
        self.at = 4
        version = self._number("I")
        if version not in _VERSIONS:
            raise CheckpointError(
                f"{self.path} has the GGUF version {version}; versions 2 and 3, little-endian, can be read"
            )
        tensors, values = self._number("Q"), self._number("Q")
        self._require((tensors + values) * 13)  # the least that one takes
        return tensors, values

    def text(self) -> str:
        size = self._number("Q")
        self._require(size)
        raw = self._data[self.at : self.at + size]
        self.at += size
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise CheckpointError(f"{self.path} holds a text that is not UTF-8; the file is damaged") from error

    def value(self) -> Any:
        kind = self._number("I")
        if kind != _LIST:
            return self._value_of(kind)
        inner, count = self._number("I"), self._number("Q")
        if inner == _LIST:
            raise CheckpointError(f"{self.path} holds a list of lists, which no GGUF file needs; the file is damaged")
        if inner == _TEXT:
            self._require(count * 8)
            return [self.text() for _ in range(count)]
        form = self._form(inner)
        self._require(count * struct.calcsize(form))
        values = struct.unpack_from(f"<{count}{form}", self._data, self.at)
        self.at += count * struct.calcsize(form)
        return list(values)

    def tensor(self) -> GgufTensor:
        """One entry of the list of tensors; its start counts from the beginning of the data."""
        name, dimensions = self.text(), self._number("I")
        if dimensions > _MOST_DIMENSIONS:
            raise CheckpointError(f"{self.path}: {name!r:.80} has {dimensions} dimensions; the file is damaged")
        shape = tuple(reversed([self._number("Q") for _ in range(dimensions)]))
        number, start = self._number("I"), self._number("Q")
        kind = find_type(number)
        if kind is None:
            raise CheckpointError(
                f"{self.path}: {name!r:.80} has the type {type_name(number)}, which can't be read back to fp32; take another file of the model"
            )
        if not shape or shape[-1] % kind.elements:
            raise CheckpointError(f"{self.path}: {name!r:.80} has no whole {kind.name} blocks; the file is damaged")
        return GgufTensor(name, kind, shape, start)

    def _value_of(self, kind: int) -> Any:
        return self.text() if kind == _TEXT else self._number(self._form(kind))

    def _form(self, kind: int) -> str:
        if kind not in _NUMBERS:
            raise CheckpointError(
                f"{self.path} holds metadata of the type {kind}, which is not known; the file is damaged"
            )
        return _NUMBERS[kind]

    def _number(self, form: str) -> Any:
        size = struct.calcsize(form)
        self._require(size)
        (number,) = struct.unpack_from("<" + form, self._data, self.at)
        self.at += size
        return number

    def _require(self, size: int) -> None:
        if size > len(self._data) - self.at:
            raise CheckpointError(f"{self.path} ends within its header; the file is truncated: download it again")
