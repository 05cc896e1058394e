"""The vocabularies that lie next to a run's sessions, read once each: tokens are shown as text without a tokenizer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from etude.core.trace.vocabulary import FILE_NAME, read_vocabulary


class Vocabularies:
    """`near` looks next to a file and above it, then where RL and the demonstrations keep theirs."""

    def __init__(self, run: Path) -> None:
        self._run = run
        self._held: dict[Path, list[str]] = {}

    def near(self, file: str, source: str) -> list[str] | None:
        """None if the run has none for this attempt: its tokens are then shown by number."""
        for folder in self._places(file, source):
            if folder in self._held:
                return self._held[folder]
            if (folder / FILE_NAME).is_file():
                self._held[folder] = read_vocabulary(folder)
                return self._held[folder]
        return None

    def _places(self, file: str, source: str) -> Iterator[Path]:
        if file:
            path = (self._run / file).parent
            while path != self._run and self._run in path.parents:
                yield path
                path = path.parent
        yield self._run / source / "sessions"
        yield self._run / "sessions"
