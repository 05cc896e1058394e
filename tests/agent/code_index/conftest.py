"""Folders to index, and indexes whose stores lie next to them."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

sys.path.insert(
    0, str(Path(__file__).parent)
)  # tests are no package: this is how they, and workers, find a module in the same folder

from etude.agent.code_index.embedder import Embedder
from etude.agent.code_index.index import Index


class Lab:
    """A folder under test and what its indexes say about themselves."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.root = home / "root"
        self.root.mkdir()
        self.notices: list[str] = []

    def write(self, files: Mapping[str, str | bytes | None]) -> None:
        """None deletes. Files are made to look an hour old, so that their stamps are trusted."""
        for path, content in files.items():
            file = self.root / path
            if content is None:
                file.unlink()
                continue
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content.encode() if isinstance(content, str) else content)
            self.age(path)

    def age(self, path: str, by_s: float = 3600.0) -> None:
        then = time.time() - by_s
        os.utime(self.root / path, (then, then))

    def index(self, store: str = "store", embedder: Embedder | None = None) -> Index:
        return Index(self.root, self.home / store, embedder=embedder, notice=self.notices.append)

    def built(self, store: str = "store") -> Index:
        index = self.index(store)
        index.update(workers=1)
        return index


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


@pytest.fixture
def fresh_lab(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Lab]:
    """A lab for each example of a property test."""
    return lambda: Lab(tmp_path_factory.mktemp("lab"))
