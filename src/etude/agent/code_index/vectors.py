"""Chunks' embeddings in files next to their segments: `<segment>.<embedder>.vec`, float16 (C, d) of unit length, in the columns format.

A row of NaN marks a chunk that is not embedded yet (after merging); missing and torn files are computed again. A chunk's similarity to a
question is the cosine.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from types import MappingProxyType
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from etude.agent.code_index.analysis import split_lines
from etude.agent.code_index.chunking import Chunk
from etude.agent.code_index.columns import read_columns, write_columns
from etude.agent.code_index.embedder import Embedder, Vectors
from etude.agent.code_index.errors import TornStore
from etude.agent.code_index.segment import IndexSegment
from etude.agent.code_index.view import View

# What endpoints take in one request without complaint.
BATCH_TEXTS = 64
# About a thousand tokens, what small embedders read of a text.
LONGEST_TEXT = 4000


Similarities = Sequence[NDArray[np.floating] | None]


class ChunkVectors:
    """The vectors of a store's chunks by one embedder."""

    def __init__(self, embedder: Embedder, folder: Path) -> None:
        self.embedder, self.folder = embedder, folder
        self._held: WeakKeyDictionary[IndexSegment, Vectors] = (
            WeakKeyDictionary()
        )  # as long as some view has the segment

    def complete(self, view: View, progress: Callable[[int, int], None] | None = None) -> None:
        """Computes and stores what is missing. Raises EmbedderFailed."""
        missing = {part.segment: self._missing(part.segment) for part in view.parts}
        done, total = 0, sum(map(len, missing.values()))
        for segment, numbers in missing.items():
            if not len(numbers):
                continue
            made = []
            for file, places in groupby(numbers.tolist(), key=lambda number: int(segment.chunk_file[number])):
                chunks = [segment.chunk(number) for number in places]
                made.append(self.embedded(chunk_texts(segment.paths[file], segment.text(file), chunks)))
                done += len(chunks)
                if progress is not None:
                    progress(done, total)
            self._keep(segment, numbers, np.concatenate(made))

    def embedded(self, texts: Sequence[str]) -> Vectors:
        """(n, d) of at least one text."""
        batches = [texts[at : at + BATCH_TEXTS] for at in range(0, len(texts), BATCH_TEXTS)]
        return np.concatenate([self.embedder.embed(batch, "document") for batch in batches]).astype(np.float16)

    def similarity(
        self, view: View, query: str, own: Mapping[IndexSegment, Vectors] = MappingProxyType({})
    ) -> Similarities:
        """The cosine of every chunk (C,) with the query, by part, 0 where a chunk is not embedded yet. `own`: an overlay's vectors."""
        asked = self.embedder.embed([query], "query")[0]
        found = [own.get(part.segment, self._find(part.segment)) for part in view.parts]
        return [None if vectors is None else np.nan_to_num(vectors.astype(np.float32) @ asked) for vectors in found]

    def _missing(self, segment: IndexSegment) -> NDArray[np.int64]:
        """The numbers of chunks without a vector."""
        found = self._find(segment)
        return np.arange(segment.chunks) if found is None else np.flatnonzero(np.isnan(found[:, 0]))

    def _keep(self, segment: IndexSegment, numbers: NDArray[np.int64], made: Vectors) -> None:
        whole = np.full((segment.chunks, made.shape[1]), np.nan, np.float16)
        if (found := self._find(segment)) is not None:
            whole[:] = found
        whole[numbers] = made
        write_columns(self.folder / vectors_name(segment.name, self.embedder.name), {"vectors": whole})
        self._held.pop(segment, None)

    def _find(self, segment: IndexSegment) -> Vectors | None:
        if segment not in self._held:
            try:
                found = read_columns(self.folder / vectors_name(segment.name, self.embedder.name))["vectors"]
            except TornStore:
                return None
            if len(found) != segment.chunks:
                return None
            self._held[segment] = found
        return self._held[segment]


def vectors_name(segment: str, embedder: str) -> str:
    """The file of a segment's vectors by this embedder."""
    return f"{segment}.{hashlib.sha256(embedder.encode()).hexdigest()[:12]}.vec"


def move_vectors(folder: Path, old: Sequence[str], moved: Sequence[NDArray[np.int32]], new: str) -> None:
    """Vectors of segments that were merged into `new`, of every embedder; `moved` as in merging.Merged."""
    endings = {file.name.removeprefix(name) for name in old for file in folder.glob(f"{name}.*.vec")}
    for ending in sorted(endings):
        whole: Vectors | None = None
        for name, places in zip(old, moved, strict=True):
            try:
                vectors = read_columns(folder / (name + ending))["vectors"]
            except TornStore:
                continue  # not computed yet, or torn: then its chunks stay without, and are computed
            if whole is None:
                whole = np.full((sum(int((m >= 0).sum()) for m in moved), vectors.shape[1]), np.nan, np.float16)
            whole[places[places >= 0]] = vectors[places >= 0]
        if whole is not None:
            write_columns(folder / (new + ending), {"vectors": whole})


def chunk_texts(path: str, text: str, chunks: Sequence[Chunk]) -> list[str]:
    """What the embedder reads of each chunk: its place, its name, its lines."""
    lines = split_lines(text)
    return [
        "\n".join([f"{path} {chunk.kind} {chunk.symbol}", *lines[chunk.start - 1 : chunk.end]])[:LONGEST_TEXT]
        for chunk in chunks
    ]
