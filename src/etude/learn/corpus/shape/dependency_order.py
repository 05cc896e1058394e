"""The order in which every file comes after what it stands on; where files stand on each other in a ring, by path.

Tarjan's strongly connected components (SIAM J. Computing 1, 1972), which come out dependencies first; without recursion, as a ring may
be thousands of files long. It walks from path to path in sorted order, so that the answer depends on nothing but the graph, and a file's
dependencies stand close before it, which a queue (Kahn) would scatter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def dependency_order(graph: Mapping[str, Sequence[str]]) -> list[str]:
    """Each key once. `graph` is path -> paths that it stands on, all of them keys."""
    order: list[str] = []
    number: dict[str, int] = {}
    low: dict[str, int] = {}
    waiting: list[str] = []  # Tarjan's stack
    in_ring: set[str] = set()
    for start in sorted(graph):
        if start in number:
            continue
        walk = [(start, iter(sorted(graph[start])))]
        number[start] = low[start] = len(number)
        waiting.append(start)
        in_ring.add(start)
        while walk:
            node, targets = walk[-1]
            target = next(targets, None)
            if target is None:
                walk.pop()
                if walk:
                    low[walk[-1][0]] = min(low[walk[-1][0]], low[node])
                if low[node] == number[node]:
                    ring = _pop_ring(waiting, node)
                    in_ring.difference_update(ring)
                    order += sorted(ring)
            elif target not in number:
                number[target] = low[target] = len(number)
                waiting.append(target)
                in_ring.add(target)
                walk.append((target, iter(sorted(graph[target]))))
            elif target in in_ring:
                low[node] = min(low[node], number[target])
    return order


def _pop_ring(waiting: list[str], root: str) -> list[str]:
    ring = [waiting.pop()]
    while ring[-1] != root:
        ring.append(waiting.pop())
    return ring
