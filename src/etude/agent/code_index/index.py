"""The index of a folder: update it, ask it. What the product's agent uses in process and the service holds for rollouts."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

from etude.agent.code_index.embedder import Embedder
from etude.agent.code_index.errors import NotBuilt
from etude.agent.code_index.hit import Hit
from etude.agent.code_index.overlay import Overlay
from etude.agent.code_index.ranking import Weights
from etude.agent.code_index.search import Filter, search
from etude.agent.code_index.store import IndexStore, Notice, State, default_folder
from etude.agent.code_index.update import IndexUpdateReport, Progress, update
from etude.agent.code_index.vectors import ChunkVectors


class Index:
    """Safe for several threads: each search works on the view it finds. Another process's update is seen by the next search."""

    def __init__(
        self,
        root: Path,
        folder: Path | None = None,
        *,
        embedder: Embedder | None = None,
        weights: Weights | None = None,
        notice: Notice | None = None,
    ) -> None:
        """`folder`: where the store lies, by default in the user's cache. `notice`: called with a sentence about what had to be rebuilt (stderr)."""
        self.root = Path(root).resolve()
        self._store = IndexStore(folder or default_folder(self.root), self.root, notice or _to_stderr)
        self._weights = weights or Weights()
        self._vectors = ChunkVectors(embedder, self._store.folder) if embedder is not None else None
        self._lock = threading.Lock()
        self._mark = (-1, -1)
        self._state = State()

    def update(self, *, workers: int = 0, progress: Progress | None = None) -> IndexUpdateReport:
        """Brings the index up to what the folder holds. Raises IndexRefused if that is no readable folder, EmbedderFailed of the embedder."""
        state, report = update(self._store, self.root, workers=workers, progress=progress)
        if self._vectors is not None:
            self._vectors.complete(state.view, progress)
        return report

    def search(
        self, query: str, *, limit: int = 10, under: str | None = None, language: str | None = None
    ) -> list[Hit]:
        """The chunks that answer a question in words or names, best first. `under`: a folder or file relative to the root; `language`: one of
        languages.LANGUAGES. Raises IndexRefused for what can't be asked, NotBuilt before the first update."""
        view = self._built().view
        similarity = self._vectors.similarity if self._vectors is not None else None
        wanted = Filter.of(view, under, language)
        return search(view, query, limit=limit, wanted=wanted, weights=self._weights, similarity=similarity)

    def overlay(self) -> Overlay:
        """A session's own view, pinned to the index as it is now."""
        return Overlay(self._built(), self._weights, self._vectors)

    def stats(self) -> dict[str, Any]:
        """What is indexed, and what was left out for which reason."""
        state, seen = self._built(), self._store.read_known_files()
        files: Counter[str] = Counter()
        for part in state.view.parts:
            numbers = [n for n, lives in enumerate(part.alive_files) if lives]
            files.update(part.segment.language_of(number) for number in numbers)
        return {
            "root": str(self.root),
            "store": str(self._store.folder),
            "generation": state.generation,
            "files": files.total(),
            "chunks": state.view.chunks,
            "segments": len(state.view.parts),
            "store_bytes": self._store.size(),
            "languages": dict(files.most_common()),
            "skipped": dict(Counter(reason for reason, _, _ in seen.skipped.values()).most_common()),
        }

    def skip_reasons(self) -> dict[str, str]:
        """path -> reason, of everything the last update left out."""
        self._built()
        return {path: reason for path, (reason, _, _) in sorted(self._store.read_known_files().skipped.items())}

    def _built(self) -> State:
        """The last commit, read again if there is a newer one."""
        with self._lock:
            mark = self._store.mark()
            if mark != self._mark:
                self._state, self._mark = self._store.read(), mark
            if not self._state.generation:
                raise NotBuilt(f"nothing of {self.root} is indexed yet; run `etude index build {self.root}`")
            return self._state


def _to_stderr(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
