"""A session in memory: a header and a tree of entries. The recorder grows it; the trace's writer also puts it on disk."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from etude.core.trace.builder import merge_routes
from etude.core.trace.entry import Entry, EntryRoutes, EntryTokens, EntryType, SessionHeader
from etude.core.trace.segment import Segment


@dataclass
class Session:
    """What happened in one attempt, in order."""

    header: SessionHeader
    entries: list[Entry] = field(default_factory=list)

    def of(self, *types: EntryType) -> list[Entry]:
        """The entries of these types, in order."""
        return [entry for entry in self.entries if entry.type in types]

    def segments(self) -> list[Segment]:
        """The token segments, one per leaf of the tree, equal to those the agent's SegmentBuilder held.

        A turn that several branches go on from counts as sampled in the last of them alone, elsewhere it is context: every
        sampled token is trained on once (promise 4)."""
        nodes = {entry.id: entry for entry in self.entries if entry.tokens is not None}
        parents = {entry.parent for entry in nodes.values()}
        paths = [_path(nodes, entry) for entry in nodes.values() if entry.id not in parents]
        last = {entry.id: i for i, path in enumerate(paths) for entry in path}
        own = self.header.session_id
        segments = [_segment(path, [last[entry.id] == i for entry in path], own) for i, path in enumerate(paths)]
        return [segment for segment in segments if segment.sampled.any()]


class Recorder:
    """Appends entries. `flush` and `close` do nothing in memory; `trace.writer.SessionWriter` writes there."""

    def __init__(self, header: SessionHeader) -> None:
        self.session = Session(header)
        self.on_entry: Callable[[Entry], None] = _unwatched
        self._start = time.monotonic()

    def append(
        self,
        type: EntryType,
        data: dict[str, Any],
        *,
        parent: int | None = None,
        tokens: EntryTokens | None = None,
        routes: EntryRoutes | None = None,
    ) -> int:
        """The new entry's id."""
        at_s = round(time.monotonic() - self._start, 4)
        entry = Entry(len(self.session.entries), parent, type, at_s, data, tokens, routes)
        self.session.entries.append(entry)
        self.on_entry(entry)
        return entry.id

    def flush(self) -> None:
        """Called at the end of every turn."""

    def close(self) -> None:
        """Called when the session is over or has failed, and again after a verdict is appended."""


def _unwatched(_entry: Entry) -> None:
    """No observer."""


def _path(nodes: dict[int, Entry], leaf: Entry) -> list[Entry]:
    path = [leaf]
    while (parent := path[-1].parent) is not None:
        path.append(nodes[parent])
    return path[::-1]


def _segment(path: list[Entry], counts: list[bool], session: str) -> Segment:
    """`counts[i]`: the i-th entry's sampled tokens are this segment's."""
    ids = [token for entry in path if entry.tokens for token in entry.tokens.ids]
    sampled = np.zeros(len(ids), dtype=bool)
    logprobs = np.zeros(len(ids), dtype=np.float32)
    versions = np.full(len(ids), -1, dtype=np.int32)
    routes: list[tuple[int, np.ndarray]] = []
    at = 0
    for entry, own in zip(path, counts, strict=True):
        assert entry.tokens is not None
        first = at + entry.tokens.lead
        last = first + len(entry.tokens.logprobs)
        if own:
            sampled[first:last] = True
            logprobs[first:last] = entry.tokens.logprobs
            versions[first:last] = entry.tokens.versions
        if entry.routes is not None:
            routes.append((entry.routes.start, entry.routes.rows))
        at += len(entry.tokens.ids)
    return Segment(np.array(ids, dtype=np.int32), sampled, logprobs, versions, merge_routes(routes, len(ids)), session)
