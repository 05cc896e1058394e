"""Grows a rollout's token segments turn by turn. Promise 2: a new prompt starts with exactly the tokens held, or forks.

Nothing is ever re-encoded here: `prompt` proves by comparison that the next request continues the held tokens; if it does
not, the held segment is sealed and a new one starts with the whole prompt, and the caller is informed, so that it can say so.
Promise 3: every sampled token keeps its logprob, version and routes as the engine reported them.
"""

from __future__ import annotations

from typing import Sequence

import numpy as np

from etude.core.trace.completion import SampledTokens
from etude.core.trace.segment import Segment, no_route


class SegmentBuilder:
    """Holds the open segment as plain lists; `segments()` freezes them. A segment that sampled nothing is left out."""

    def __init__(self) -> None:
        self.forks = 0
        self._sealed: list[_Open] = []
        self._open = _Open()

    @property
    def open_ids(self) -> list[int]:
        """The ids of the open segment. Read only."""
        return self._open.ids

    @property
    def total_tokens(self) -> int:
        """Tokens of all segments so far, shared prefixes counted as often as they are forwarded."""
        return sum(len(s.ids) for s in self._sealed) + len(self._open.ids)

    def prompt(self, ids: Sequence[int]) -> bool:
        """Take the next request's prompt. True: it continues the held tokens. False: it forked, a new segment began."""
        open_ids = self._open.ids
        n = len(open_ids)
        if len(ids) >= n and list(ids[:n]) == open_ids:
            self.extend(ids[n:])
            return True
        self.fork(ids)
        return False

    def fork(self, ids: Sequence[int]) -> None:
        """Start a segment with a prompt that does not continue the held tokens, and count it."""
        self.forks += 1
        self.begin()
        self.extend(ids)

    def extend(self, ids: Sequence[int]) -> None:
        """Append rendered tokens: prompts, tool results, an end marker after a cut-off turn."""
        self._open.add(ids, [False] * len(ids), [0.0] * len(ids), [-1] * len(ids))

    def sample(self, tokens: SampledTokens) -> None:
        """Append what the policy sampled after the held tokens."""
        n = len(tokens.ids)
        if len(tokens.logprobs) != n or len(tokens.versions) != n:
            raise ValueError(
                f"a completion has {n} ids but {len(tokens.logprobs)} logprobs and {len(tokens.versions)} versions: "
                "the policy must report one of each per sampled token"
            )
        self._open.add(tokens.ids, [True] * n, tokens.logprobs, tokens.versions)
        if tokens.routes is not None and len(tokens.routes):
            self._open.routes.append((tokens.route_start, tokens.routes))

    def begin(self) -> None:
        """Seal the open segment (a self-summary or a fork) and start an empty one."""
        if self._open.ids:
            self._sealed.append(self._open)
        self._open = _Open()

    def segments(self) -> list[Segment]:
        """All segments in order, frozen. Those in which nothing was sampled teach nothing and are left out."""
        return [s.freeze() for s in (*self._sealed, self._open) if any(s.sampled)]


class _Open:
    """A growing segment."""

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.sampled: list[bool] = []
        self.logprobs: list[float] = []
        self.versions: list[int] = []
        self.routes: list[tuple[int, np.ndarray]] = []

    def add(
        self, ids: Sequence[int], sampled: Sequence[bool], logprobs: Sequence[float], versions: Sequence[int]
    ) -> None:
        self.ids.extend(ids)
        self.sampled.extend(sampled)
        self.logprobs.extend(logprobs)
        self.versions.extend(versions)

    def freeze(self) -> Segment:
        return Segment(
            ids=np.array(self.ids, dtype=np.int32),
            sampled=np.array(self.sampled, dtype=bool),
            logprobs=np.array(self.logprobs, dtype=np.float32),
            versions=np.array(self.versions, dtype=np.int32),
            routes=merge_routes(self.routes, len(self.ids)),
        )


def merge_routes(parts: Sequence[tuple[int, np.ndarray]], length: int) -> np.ndarray | None:
    """(T, L_moe, K) from the rows each completion reported; None without any. The first report of a position wins:
    it is the forward pass whose keys and values the later tokens attended to."""
    if not parts:
        return None
    dtype = parts[0][1].dtype
    routes = np.full((length, *parts[0][1].shape[1:]), no_route(dtype), dtype=dtype)
    unwritten = np.ones(length, dtype=bool)
    for start, rows in parts:
        stop = start + len(rows)
        if start < 0 or stop > length:
            raise ValueError(
                f"routes for positions {start}..{stop} of a segment of {length} tokens: route_start counts from the "
                "segment's first token"
            )
        fresh = unwritten[start:stop]
        routes[start:stop][fresh] = rows[fresh]
        unwritten[start:stop] = False
    return routes
