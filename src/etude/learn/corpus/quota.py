"""How much of each source is kept: `max_bytes` bounds it, and what is left out for that is listed with its own reason.

The projects of a bounded source come in the order of a hash of their names, so that what is kept is a fair sample whatever they are
called. The first project that does not fit ends its source (going on with smaller ones would favour the small), and of a single
project no more files are taken than fit the bound alone; so a source never holds more than the bound, and never nothing for it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

from etude.core.sources.project import Ref
from etude.learn.corpus.settings import SourceSettings

OVER = "over max_bytes"


class Quota:
    """What of each source's bound is left."""

    def __init__(self, sources: Mapping[str, SourceSettings], entries: Iterable[Mapping[str, Any]]) -> None:
        """`entries` are the manifest's lines of an earlier build, which count."""
        self._left = {name: table.max_bytes for name, table in sources.items() if table.max_bytes is not None}
        self._full: set[str] = set()
        for line in entries:
            if line["reason"] == OVER:
                self._full.add(line["source"])
            else:
                self.admits(line["source"], sum(size for _, size in line["kept"].values()))

    def order(self, source: str, refs: Iterable[Ref]) -> list[Ref]:
        """As they came, or for a bounded source by hash; versions of a project stay together."""
        found = list(refs)
        if source not in self._left:
            return found
        return sorted(found, key=lambda ref: hashlib.sha256(ref.project.encode("utf-8", "surrogatepass")).digest())

    def full(self, source: str) -> bool:
        """Whether nothing more is taken from it."""
        return source in self._full

    def admits(self, source: str, size_bytes: int) -> bool:
        """Takes a project of this size, unless its source is full or becomes too full by it."""
        if source in self._full:
            return False
        if source not in self._left:
            return True
        if size_bytes > self._left[source]:
            self._full.add(source)
            return False
        self._left[source] -= size_bytes
        return True
