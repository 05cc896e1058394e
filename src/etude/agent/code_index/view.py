"""What a search sees: segments, and which of their files count. Never changes, so a reader's view is consistent and can be pinned.

Promise: a view depends on the living files alone, not on how they are spread over segments. Every figure that ranking uses (numbers of chunks
and files, lengths, document frequencies) is counted over the living, exactly; so an index that was updated a thousand times, an overlay, and
an index built from scratch answer alike, to the last bit of the score.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from etude.agent.code_index.merging import LiveSegment
from etude.agent.code_index.segment import IndexSegment, Postings


class LivePart:
    """A segment with its living files (F,) and chunks (C,)."""

    def __init__(self, segment: IndexSegment, alive_files: NDArray[np.bool_]) -> None:
        self.segment = segment
        self.alive_files = alive_files
        self.whole = bool(alive_files.all())
        self.alive = np.repeat(alive_files, np.diff(segment.first_chunk))  # (C,)

    @cached_property
    def file_length(self) -> NDArray[np.float64]:
        """(F,)"""
        segment = self.segment
        return np.bincount(segment.chunk_file, weights=segment.length, minlength=segment.files).astype(np.float64)

    @cached_property
    def totals(self) -> tuple[int, int, int]:
        """Living chunks, living files that have any, and the sum of their lengths in terms."""
        sizes = np.diff(self.segment.first_chunk)
        length = int(self.segment.length[self.alive].sum(dtype=np.int64))
        return int(self.alive.sum()), int((self.alive_files & (sizes > 0)).sum()), length

    def postings(self, term: str) -> Postings | None:
        """Those in living chunks."""
        found = self.segment.postings(term)
        if found is None or self.whole:
            return found
        kept = self.alive[found.chunks]
        return Postings(found.chunks[kept], found.counts[kept])

    def part(self) -> LiveSegment:
        return LiveSegment(self.segment, self.alive_files)


class View:
    """All the parts; a path lives in one of them at most."""

    def __init__(self, parts: Iterable[LivePart] = ()) -> None:
        self.parts: tuple[LivePart, ...] = tuple(parts)
        self.chunks, self.files, self.length = (sum(p.totals[i] for p in self.parts) for i in range(3))

    def place(self, path: str) -> tuple[int, int] | None:
        """The part and the file in it where a path lives."""
        for number, part in enumerate(self.parts):
            file = part.segment.find(path)
            if file is not None and part.alive_files[file]:
                return number, file
        return None

    def digest(self, path: str) -> bytes:
        """The digest of the text that is indexed for a path; b"" if none is."""
        place = self.place(path)
        return self.parts[place[0]].segment.digest(place[1]) if place else b""

    def with_changes(self, gone: Iterable[str], added: Sequence[IndexSegment]) -> View:
        """This view without some paths and with more segments, which must not hold a path that stays."""
        dead: dict[int, list[int]] = {}
        for path in gone:
            if (place := self.place(path)) is not None:
                dead.setdefault(place[0], []).append(place[1])
        parts = [self._killed(number, dead[number]) if number in dead else p for number, p in enumerate(self.parts)]
        return View([*parts, *(LivePart(segment, np.ones(segment.files, np.bool_)) for segment in added)])

    def places(self) -> dict[str, tuple[int, int]]:
        """Every living path, and the part and the file in it where it lives."""
        return {
            part.segment.paths[file]: (number, file)
            for number, part in enumerate(self.parts)
            for file in np.flatnonzero(part.alive_files).tolist()
        }

    def _killed(self, number: int, files: list[int]) -> LivePart:
        alive = self.parts[number].alive_files.copy()
        alive[files] = False
        return LivePart(self.parts[number].segment, alive)
