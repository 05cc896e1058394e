"""Ways through a store: the cheapest walk to a version, and which files some walk still needs. Pure.

Versions are nodes, and so is having nothing; an anchor leads from nothing to its version, a delta joins its base and its
version in both directions. Since each delta's base was published before it, the deltas form a tree, and from any anchor
there is a walk to every version whose deltas are kept.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Edge:
    """One anchor (`base` None) or delta of the store, with the bytes that fetching it costs."""

    version: int
    base: int | None
    bytes: int

    @property
    def name(self) -> str:
        return f"anchor-{self.version}" if self.base is None else f"delta-{self.version}"


@dataclass(frozen=True)
class PathStep:
    """Apply `edge`; `rewind` undoes it."""

    edge: Edge
    rewind: bool = False

    @property
    def reaches(self) -> int:
        version = self.edge.base if self.rewind else self.edge.version
        assert version is not None
        return version


def cheapest(edges: Iterable[Edge], start: int | None, goal: int) -> list[PathStep] | None:
    """The walk of fewest bytes to `goal` from version `start` or from nothing; None if there is none (Dijkstra)."""
    ways: dict[int | None, list[PathStep]] = {}
    for edge in edges:
        ways.setdefault(edge.base, []).append(PathStep(edge))
        if edge.base is not None:
            ways.setdefault(edge.version, []).append(PathStep(edge, rewind=True))
    number = itertools.count()  # breaks ties, so that walks are never compared
    queue: list[tuple[int, int, int | None, list[PathStep]]] = [(0, next(number), n, []) for n in (start, None)]
    done: set[int | None] = set()
    while queue:
        cost, _, node, walk = heapq.heappop(queue)
        if node == goal:
            return walk
        if node in done:
            continue
        done.add(node)
        for step in ways.get(node, []):
            if step.reaches not in done:
                heapq.heappush(queue, (cost + step.edge.bytes, next(number), step.reaches, [*walk, step]))
    return None


def needed(edges: Sequence[Edge], keep_anchors: int, held: Collection[int]) -> list[Edge]:
    """The edges to keep: the newest `keep_anchors` anchors, and every delta on a walk from the oldest of them to a later
    version or to one that the sender `held` (the next delta may start there)."""
    anchors = sorted((e for e in edges if e.base is None), key=lambda e: e.version)[-keep_anchors:]
    if not anchors:
        return list(edges)
    oldest = anchors[0].version
    up = {e.version: e for e in edges if e.base is not None}  # each version's delta, towards its base
    trunk = [oldest, *(base for _, base in _climb(up, oldest, ()))]  # the oldest anchor and what it descends from
    kept, top = set(anchors), oldest
    roots = {anchor.version for anchor in anchors}  # an anchor that healed a broken chain has no delta
    for version in {*held, *(v for v in up if v > oldest)}:
        walk = _climb(up, version, trunk)
        meets = walk[-1][1] if walk else version
        if meets in trunk:
            top = min(top, meets)
        if meets in trunk or meets in roots:
            kept.update(edge for edge, _ in walk)
    kept.update(up[version] for version in trunk if version > top)
    return [e for e in edges if e in kept]


def _climb(up: Mapping[int, Edge], version: int, until: Collection[int]) -> list[tuple[Edge, int]]:
    """The deltas from `version` towards its root, each with its base, up to the first version in `until`."""
    walk: list[tuple[Edge, int]] = []
    while version in up and version not in until:
        edge = up[version]
        assert edge.base is not None
        walk.append((edge, edge.base))
        version = edge.base
    return walk
