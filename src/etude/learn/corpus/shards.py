"""Token shards: files of ids read by memory map, with one index of all documents.

Folder layout: `tokens-00000.bin`, `tokens-00001.bin` … (raw little-endian uint16, or uint32 for vocabularies above 65,536), `index.npy`
with one row (shard, offset, tokens, bytes of text) a document, and `shards.json`, written last: a folder without it is unfinished.

    {"shards": 2, "documents": 90431, "tokens": 51200345, "bytes": 160032112, "vocabulary": 151936, "dtype": "<u4", "digest": "9f3c…"}

`digest` is the XXH3-128 of all documents' ids; folders of earlier releases have none.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterable, Sequence
from copy import copy
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import xxhash

from etude.core.files import replace_file

# 64 MiB of small tokens a file: large enough to read in one go, small enough to copy and to map on a 32-bit offset.
SHARD_TOKENS = 32 * 1024 * 1024
DONE_FILE = "shards.json"
# Ids of a vocabulary up to this take two bytes each, of a larger one four.
SMALL_VOCABULARY = 1 << 16


class TokenShards:
    """Random access to documents by number, in the order they were written."""

    def __init__(self, directory: Path) -> None:
        done = directory / DONE_FILE
        if not done.is_file():
            raise FileNotFoundError(f"{directory} holds no finished token shards ({DONE_FILE} is missing); rebuild it")
        self.meta: dict[str, Any] = json.loads(done.read_text())
        self._index: np.ndarray = np.load(directory / "index.npy")  # (documents, 4) int64
        self._files = [
            np.memmap(directory / f"tokens-{i:05d}.bin", dtype=self.meta["dtype"], mode="r")
            for i in range(self.meta["shards"])
        ]

    def __len__(self) -> int:
        return len(self._index)

    @property
    def lengths(self) -> np.ndarray:
        """(documents,) int64, in tokens."""
        return self._index[:, 2]

    @property
    def text_bytes(self) -> np.ndarray:
        """(documents,) int64: how long each was as UTF-8, 0 where the writer did not say."""
        return self._index[:, 3]

    @property
    def digest(self) -> str:
        """Of the tokens of all documents that were written; empty for a folder of an earlier release."""
        return str(self.meta.get("digest", ""))

    @property
    def total_tokens(self) -> int:
        return int(self.lengths.sum())

    def within(self, longest: int) -> TokenShards:
        """The same folder without documents of more than `longest` tokens."""
        chosen = copy(self)
        chosen._index = self._index[self.lengths <= longest]
        return chosen

    def document(self, number: int) -> np.ndarray:
        """(T,) uint16 or uint32 view of the memory map."""
        shard, offset, length = (int(value) for value in self._index[number, :3])
        return self._files[shard][offset : offset + length]


class ShardWriter:
    """Takes documents one by one; `finish` makes them readable. What an earlier, unfinished writer left in the folder is overwritten."""

    def __init__(self, directory: Path, vocabulary: int = SMALL_VOCABULARY, shard_tokens: int = SHARD_TOKENS) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / DONE_FILE).unlink(missing_ok=True)
        self.directory, self.vocabulary, self.shard_tokens = directory, vocabulary, shard_tokens
        self.dtype = "<u2" if vocabulary <= SMALL_VOCABULARY else "<u4"
        self._index = array("q")  # rows of four: 32 bytes a document
        self._shard = self._offset = 0
        self._digest = xxhash.xxh3_128()
        self._file = self._open()

    def add(self, ids: Sequence[int], text_bytes: int = 0) -> None:
        """A document; an empty one is left out. Raises ValueError for an id outside the vocabulary."""
        if not len(ids):
            return
        array = np.asarray(ids)
        if array.min() < 0 or array.max() >= self.vocabulary:
            wrong = array.min() if array.min() < 0 else array.max()
            raise ValueError(
                f"token id {wrong} is outside the vocabulary of {self.vocabulary}: the tokenizer isn't the one named"
            )
        if self._offset and self._offset + len(ids) > self.shard_tokens:
            self._file.close()
            self._shard, self._offset = self._shard + 1, 0
            self._file = self._open()
        data = array.astype(self.dtype).tobytes()
        self._file.write(data)
        self._digest.update(data)
        self._index.extend((self._shard, self._offset, len(ids), text_bytes))
        self._offset += len(ids)

    def finish(self) -> TokenShards:
        """Raises ValueError where no document came."""
        self.close()
        if not self._index:
            raise ValueError(f"no text to write to {self.directory}: every source is empty or was refused")
        index = np.frombuffer(self._index, np.int64).reshape(-1, 4)
        np.save(self.directory / "index.npy", index)
        meta = {
            "shards": self._shard + 1,
            "documents": len(index),
            "tokens": int(index[:, 2].sum()),
            "bytes": int(index[:, 3].sum()),
            "vocabulary": self.vocabulary,
            "dtype": self.dtype,
            "digest": self._digest.hexdigest(),
        }
        replace_file(self.directory / DONE_FILE, json.dumps(meta) + "\n")
        return TokenShards(self.directory)

    def close(self) -> None:
        """Lets go of the open file; without `finish` the folder stays unfinished."""
        self._file.close()

    def _open(self) -> BinaryIO:
        return (self.directory / f"tokens-{self._shard:05d}.bin").open("wb")


def write_shards(
    directory: Path,
    documents: Iterable[Sequence[int]],
    shard_tokens: int = SHARD_TOKENS,
    vocabulary: int = SMALL_VOCABULARY,
) -> TokenShards:
    """Writes all documents and opens the result."""
    writer = ShardWriter(directory, vocabulary, shard_tokens)
    try:
        for ids in documents:
            writer.add(ids)
        return writer.finish()
    finally:
        writer.close()
