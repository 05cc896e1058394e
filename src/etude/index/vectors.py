"""Chunks' embeddings beside their segments: `<segment>.<embedder>.vec`, float16 (C, d) of unit length, in the columns format.

Missing or torn ones are computed again; a chunk's similarity to a question is the cosine.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from etude.index.analysis import split_lines
from etude.index.chunking import Chunk
from etude.index.columns import read_columns, write_columns
from etude.index.embedder import Embedder, Vectors
from etude.index.errors import TornStore
from etude.index.segment import Segment
from etude.index.view import View

# What endpoints take in one request without complaint.
BATCH_TEXTS = 64
# About a thousand tokens, what small embedders read of a text.
LONGEST_TEXT = 4000


Similarities = Sequence[NDArray[np.floating] | None]


class ChunkVectors:
    """The vectors of a store's chunks by one embedder."""

    def __init__(self, embedder: Embedder, folder: Path) -> None:
        self.embedder, self.folder = embedder, folder
        self._held: WeakKeyDictionary[Segment, Vectors] = WeakKeyDictionary()  # as long as some view has the segment

    def complete(self, view: View, progress: Callable[[int, int], None] | None = None) -> None:
        """Computes and stores what is missing. Raises EmbedderFailed."""
        missing = [part.segment for part in view.parts if self._find(part.segment) is None]
        done, total = 0, sum(segment.chunks for segment in missing)
        for segment in missing:
            made = []
            for file, path in enumerate(segment.paths):
                chunks = [segment.chunk(number) for number in range(*segment.first_chunk[file : file + 2].tolist())]
                made.append(self.embedded(chunk_texts(path, segment.text(file), chunks)))
                done += len(chunks)
                if progress is not None:
                    progress(done, total)
            write_columns(
                self.folder / vectors_name(segment.name, self.embedder.name), {"vectors": np.concatenate(made)}
            )

    def embedded(self, texts: Sequence[str]) -> Vectors:
        """(n, d) of at least one text."""
        batches = [texts[at : at + BATCH_TEXTS] for at in range(0, len(texts), BATCH_TEXTS)]
        return np.concatenate([self.embedder.embed(batch, "document") for batch in batches]).astype(np.float16)

    def similarity(self, view: View, query: str, own: Mapping[Segment, Vectors] = MappingProxyType({})) -> Similarities:
        """The cosine of every chunk (C,) with the query, by part; None for a part that is not embedded yet. `own`: an overlay's vectors."""
        asked = self.embedder.embed([query], "query")[0]
        found = [own.get(part.segment, self._find(part.segment)) for part in view.parts]
        return [None if vectors is None else vectors.astype(np.float32) @ asked for vectors in found]

    def _find(self, segment: Segment) -> Vectors | None:
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
    """Vectors of segments that were merged into `new`, for every embedder that all of them have; `moved` as in merging.Merged."""
    for first in folder.glob(f"{old[0]}.*.vec"):
        ending = first.name.removeprefix(old[0])
        try:
            found: list[Vectors] = [read_columns(folder / (name + ending))["vectors"] for name in old]
        except TornStore:
            continue  # not all have them: computed again
        made = np.zeros((sum(int((m >= 0).sum()) for m in moved), found[0].shape[1]), found[0].dtype)
        for vectors, places in zip(found, moved, strict=True):
            made[places[places >= 0]] = vectors[places >= 0]
        write_columns(folder / (new + ending), {"vectors": made})


def chunk_texts(path: str, text: str, chunks: Sequence[Chunk]) -> list[str]:
    """What the embedder reads of each chunk: where it stands, its name, its lines."""
    lines = split_lines(text)
    return [
        "\n".join([f"{path} {chunk.kind} {chunk.symbol}", *lines[chunk.start - 1 : chunk.end]])[:LONGEST_TEXT]
        for chunk in chunks
    ]
