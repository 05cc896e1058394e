"""What a relay copies next: as little as leads on. Pure.

    first    what leads from the newest version of the target (or from nothing, where that costs less) to the newest of the source, in the order
             of walking; versions that this walk passes by are not copied: nothing needs them any more
    later    the newest anchor and what leads on from it: an engine that restarts, or was away, begins there. It gives way to `first`

What the target has costs nothing, so both go by it wherever they can. What the source has retired leaves the target with its next index.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from etude.learn.weights.path import Edge, cheapest
from etude.learn.weights.store import IndexEntry, StoreIndex

# Of an entry that is being copied: with no more than this share left it is finished, whatever has been published meanwhile.
NEARLY = 0.5


@dataclass(frozen=True)
class Copies:
    """Entries to copy, each list in the order of copying; `first` is None where no way leads to the newest version."""

    first: tuple[IndexEntry, ...] | None
    later: tuple[IndexEntry, ...]


def copies(
    source: StoreIndex, target: StoreIndex, whole: Collection[IndexEntry] = (), broken: Collection[IndexEntry] = ()
) -> Copies:
    """`whole`: copied and not in the target's index yet; `broken`: can't be read at the source."""
    if source.newest is None:
        return Copies((), ())
    usable = [entry for entry in source.entries if entry not in broken]
    have = {*target.entries, *whole}
    start = target.newest
    if start is not None and source.digest(start) != target.digest(start):
        start = None  # that number, other bits: a course that was given up
    anchors = [entry for entry in usable if entry.base is None]
    fresh = max(anchors, key=lambda entry: entry.version, default=None)
    later = _walk((entry for entry in usable if entry.base is not None or entry is fresh), have, None, source.newest)
    return Copies(_walk(usable, have, start, source.newest), later or ())


def kept_entries(source: StoreIndex, target: StoreIndex, copied: IndexEntry | None = None) -> tuple[IndexEntry, ...]:
    """The target's entries when `copied` is there too: what the source still has of them, in its order."""
    have = {*target.entries, copied}
    return tuple(entry for entry in source.entries if entry in have)


def gives_way(left_bytes: int, whole_bytes: int, gave_way: bool) -> bool:
    """Whether an entry that a newer index passes by is dropped half copied; two in a row are not, or a link that is slower than the
    publisher would never bring anything."""
    return not gave_way and left_bytes > NEARLY * whole_bytes


def _walk(
    entries: Iterable[IndexEntry], have: Collection[IndexEntry], start: int | None, goal: int
) -> tuple[IndexEntry, ...] | None:
    """What is to be copied of the cheapest walk; None where there is none."""
    if start == goal:
        return ()
    known = {entry.edge.name: entry for entry in entries}
    edges: list[Edge] = [replace(entry.edge, bytes=0 if entry in have else entry.bytes + 1) for entry in known.values()]
    walk = cheapest(edges, start, goal)
    if walk is None:
        return None
    return tuple(entry for step in walk if (entry := known[step.edge.name]) not in have)
