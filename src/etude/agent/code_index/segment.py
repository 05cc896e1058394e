"""A part of the index that never changes: some files, their chunks and postings. What changes is which of its files still count (view.py).

Files lie in the order of their paths, chunks in the order of files and lines, so that a folder's chunks are one range. The text is kept
(zstandard) because a hit must show what was indexed, also after the file changed and where the folder can't be read.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from etude.agent.code_index.analysis import FIELDS
from etude.agent.code_index.chunking import Chunk
from etude.agent.code_index.columns import Columns
from etude.agent.code_index.languages import LANGUAGES
from etude.core.trace.bounded_zstd import decompress

MOST_TEXT_BYTES = 256 << 20  # of one file


@dataclass(frozen=True)
class Postings:
    """`chunks` (n,) ascending; `counts` (n, 4): occurrences by field, in the order of analysis.FIELDS."""

    chunks: NDArray[np.int32]
    counts: NDArray[np.uint8]


class IndexSegment:
    """F files, C chunks, V terms, P postings:

    paths, texts, symbols, kinds: bytes end to end with `*_at` (n + 1,) offsets · language, digest (F,), (F, 16) · first_chunk (F + 1,)
    · lines (C, 2), length, file (C,) · term (V,) sorted, term_at (V + 1,) · chunk (P,), counts (P, 4)
    """

    def __init__(self, name: str, columns: Columns) -> None:
        self.name = name
        self.columns = columns
        self.chunk_file = columns["file"]  # (C,)
        self.length = columns["length"]  # (C,)
        self.first_chunk = columns["first_chunk"]  # (F + 1,)
        self.language = columns["language"]  # (F,)

    @property
    def files(self) -> int:
        return len(self.language)

    @property
    def chunks(self) -> int:
        return len(self.length)

    @cached_property
    def paths(self) -> list[str]:
        """Ascending."""
        blob, at = self.columns["paths"].tobytes(), self.columns["paths_at"].tolist()
        return [blob[a:b].decode() for a, b in zip(at, at[1:], strict=False)]

    def find(self, path: str) -> int | None:
        """The number of the file with this path."""
        at = bisect_left(self.paths, path)
        return at if at < len(self.paths) and self.paths[at] == path else None

    def below(self, folder: str) -> tuple[int, int]:
        """The files [first, last) that lie under a folder, or that are this one file."""
        if (alone := self.find(folder)) is not None:
            return alone, alone + 1
        # "0" is the character after "/".
        return bisect_left(self.paths, folder + "/"), bisect_left(self.paths, folder + "0")

    def digest(self, file: int) -> bytes:
        return self.columns["digest"][file].tobytes()

    def text(self, file: int) -> str:
        """The text as it was indexed."""
        at = self.columns["texts_at"]
        return decompress(self.columns["texts"][at[file] : at[file + 1]].tobytes(), MOST_TEXT_BYTES).decode()

    def language_of(self, file: int) -> str:
        return LANGUAGES[self.language[file]]

    def chunk(self, number: int) -> Chunk:
        start, end = self.columns["lines"][number].tolist()
        return Chunk(start, end, self._entry("symbols", number), self._entry("kinds", number))

    def postings(self, term: str) -> Postings | None:
        """The position of a term; None if absent."""
        wanted, held = term.encode(), self.columns["term"]
        at = int(np.searchsorted(held, np.bytes_(wanted)))
        if at == len(held) or held[at] != wanted:
            return None
        first, last = self.columns["term_at"][at : at + 2].tolist()
        return Postings(self.columns["chunk"][first:last], self.columns["counts"][first:last])

    def _entry(self, column: str, number: int) -> str:
        first, last = self.columns[column + "_at"][number : number + 2].tolist()
        return self.columns[column][first:last].tobytes().decode()


assert len(FIELDS) == 4  # a posting's counts are four bytes
