"""Token shards: uint16 files read by memory map, with one index of all documents.

Folder layout: `tokens-00000.bin`, `tokens-00001.bin` … (raw little-endian uint16), `index.npy` with one row
(shard, offset, length) a document, and `shards.json`, written last: a folder without it is unfinished.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from copy import copy
from pathlib import Path

import numpy as np

# 64 MiB of tokens a file: large enough to read in one go, small enough to copy and to map on a 32-bit offset.
SHARD_TOKENS = 32 * 1024 * 1024
DONE_FILE = "shards.json"


class TokenShards:
    """Random access to documents by number, in the order they were written."""

    def __init__(self, directory: Path) -> None:
        done = directory / DONE_FILE
        if not done.is_file():
            raise FileNotFoundError(f"{directory} holds no finished token shards ({DONE_FILE} is missing); rebuild it")
        self.meta: dict[str, int] = json.loads(done.read_text())
        self._index: np.ndarray = np.load(directory / "index.npy")  # (documents, 3) int64
        self._files = [
            np.memmap(directory / f"tokens-{i:05d}.bin", dtype="<u2", mode="r") for i in range(self.meta["shards"])
        ]

    def __len__(self) -> int:
        return len(self._index)

    @property
    def lengths(self) -> np.ndarray:
        """(documents,) int64, in tokens."""
        return self._index[:, 2]

    @property
    def total_tokens(self) -> int:
        return int(self.lengths.sum())

    def within(self, longest: int) -> TokenShards:
        """The same folder without documents of more than `longest` tokens."""
        chosen = copy(self)
        chosen._index = self._index[self.lengths <= longest]
        return chosen

    def document(self, number: int) -> np.ndarray:
        """(T,) uint16 view of the memory map."""
        shard, offset, length = (int(value) for value in self._index[number])
        return self._files[shard][offset : offset + length]


def write_shards(directory: Path, documents: Iterable[Sequence[int]], shard_tokens: int = SHARD_TOKENS) -> TokenShards:
    """Writes the documents (ids below 65,536; empty ones are left out) and opens the result."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / DONE_FILE).unlink(missing_ok=True)
    index: list[tuple[int, int, int]] = []
    shard = offset = 0
    file = (directory / f"tokens-{shard:05d}.bin").open("wb")
    try:
        for ids in documents:
            if not len(ids):
                continue
            if offset and offset + len(ids) > shard_tokens:
                file.close()
                shard, offset = shard + 1, 0
                file = (directory / f"tokens-{shard:05d}.bin").open("wb")
            file.write(_uint16(ids).tobytes())
            index.append((shard, offset, len(ids)))
            offset += len(ids)
    finally:
        file.close()
    if not index:
        raise ValueError(f"no text to write to {directory}: every source is empty or was refused")
    np.save(directory / "index.npy", np.array(index, np.int64))
    (directory / DONE_FILE).write_text(json.dumps({"shards": shard + 1, "documents": len(index)}))
    return TokenShards(directory)


def _uint16(ids: Sequence[int]) -> np.ndarray:
    array = np.asarray(ids)
    if array.min() < 0 or array.max() > 0xFFFF:
        raise ValueError(f"token id {array.max()} does not fit uint16; shards hold vocabularies up to 65,536")
    return array.astype("<u2")
