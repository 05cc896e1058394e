"""One answer of a search."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Hit:
    """A chunk that answers. Lines count from 1, both ends included; `path` is relative to the index's root, with `/`.

    `symbol` is the qualified name of the innermost definition the chunk belongs to ("" at top level), `kind` what that is (function, class,
    section …). `score` orders the hits of one search and means nothing between searches. `snippet` starts at `snippet_line` and is at
    most `snippet.LINES` lines of the chunk.
    """

    path: str
    start_line: int
    end_line: int
    symbol: str
    kind: str
    language: str
    score: float
    snippet: str
    snippet_line: int

    def to_json(self) -> dict[str, Any]:
        """For the wire and for --json."""
        return asdict(self)
