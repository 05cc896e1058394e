"""A session's own view of a shared index: the base as it was when the session began, with the files the session changed.

Promise: an overlay answers exactly as an index built from scratch over the base's files with the changes applied, so a rollout sees its own
edits and nothing of anyone else's. It costs the changed files alone: hundreds of sessions of one repository share the base's pages.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from etude.agent.code_index.admission import admit
from etude.agent.code_index.analysis import AnalysedFile, analyse
from etude.agent.code_index.building import IndexSegmentBuilder
from etude.agent.code_index.embedder import Vectors
from etude.agent.code_index.errors import IndexRefused
from etude.agent.code_index.hit import Hit
from etude.agent.code_index.ranking import Weights
from etude.agent.code_index.reading import digest_of
from etude.agent.code_index.search import Filter, relative, search
from etude.agent.code_index.segment import IndexSegment
from etude.agent.code_index.store import State
from etude.agent.code_index.vectors import ChunkVectors, Similarities, chunk_texts
from etude.agent.code_index.view import View

# What one session may hold: its own edits; a build's output does not belong here.
MOST_FILES = 2000


class Overlay:
    """Not for several threads at once; each session has its own."""

    def __init__(self, base: State, weights: Weights, vectors: ChunkVectors | None = None) -> None:
        self.generation = base.generation
        self._base, self._weights = base.view, weights
        self._vectors = vectors
        self._embedded: dict[str, Vectors] = {}  # of own files
        self._changed: dict[str, AnalysedFile | None] = {}  # None: gone, or nothing to index
        self._view: View | None = base.view

    def put(self, files: Mapping[str, str | bytes | None]) -> dict[str, str]:
        """Takes files as the session left them, None for deleted ones; a later put of a path replaces the earlier one. Returns path -> reason for
        those that are not indexed (binary, too large …). Raises IndexRefused for paths out of the root and for too many files."""
        named = {_named(path): content for path, content in files.items()}
        if len(named.keys() | self._changed.keys()) > MOST_FILES:
            raise IndexRefused(f"more than {MOST_FILES} changed files in one session; update the base index instead")
        refused: dict[str, str] = {}
        for path, content in named.items():
            self._take(path, content.encode(errors="replace") if isinstance(content, str) else content, refused)
        self._view = None
        return refused

    def search(
        self, query: str, *, limit: int = 10, under: str | None = None, language: str | None = None
    ) -> list[Hit]:
        """As Index.search."""
        view = self.view
        wanted = Filter.of(view, under, language)
        similarity = self._similarity if self._vectors is not None else None
        return search(view, query, limit=limit, wanted=wanted, weights=self._weights, similarity=similarity)

    @property
    def changed(self) -> list[str]:
        """The paths that differ from the base."""
        return sorted(self._changed)

    @property
    def view(self) -> View:
        """The base with the changes; made again after a put."""
        if self._view is None:
            builder = IndexSegmentBuilder()
            for _, file in sorted(self._changed.items()):
                if file is not None:
                    builder.add(file)
            own = [IndexSegment("overlay", builder.columns())] if builder.files else []
            self._view = self._base.with_changes(self._changed, own)
        return self._view

    def _take(self, path: str, raw: bytes | None, refused: dict[str, str]) -> None:
        self._embedded.pop(path, None)
        digest = digest_of(raw) if raw is not None else b""
        if digest == self._base.digest(path):  # as it was, or never there
            self._changed.pop(path, None)
            return
        self._changed[path] = None
        if raw is None:
            return
        text, reason = admit(path, raw)
        if reason is None:
            self._changed[path] = analyse(path, text, digest)
        else:
            refused[path] = reason

    def _similarity(self, view: View, query: str) -> Similarities:
        """The base's vectors, and those of own files, computed when first asked for."""
        assert self._vectors is not None  # search() looked
        own = [file for _, file in sorted(self._changed.items()) if file is not None]
        for file in own:
            if file.path not in self._embedded:
                self._embedded[file.path] = self._vectors.embedded(chunk_texts(file.path, file.text, file.places))
        vectors = {view.parts[-1].segment: np.concatenate([self._embedded[file.path] for file in own])} if own else {}
        return self._vectors.similarity(view, query, vectors)


def _named(path: str) -> str:
    """A file's path in the index's spelling. Raises IndexRefused for one that no file of the base could have."""
    if not relative(path) or not path.isprintable():
        raise IndexRefused(f"{path!r} names no file; give a path relative to the root, in printable characters")
    return relative(path)
