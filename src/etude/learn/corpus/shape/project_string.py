"""A project as one long text, for long context: what it is, then its files so that each is read after what it depends on.

    manifest       name and version, the list of paths, the README's head
    dependencies   modules (dependencies first), tests, documents, history: the order to learn from
    path           as the paths sort
    random         as a seed has it
    target         nearest files last and one file at the very end: the files that an agent has read when it reaches the file that it changes

Every record comes exactly once, whatever the order. A project longer than the longest bucket becomes several strings, cut between files
(`sections.cut`); each names the smallest bucket that holds it. Other corpora join a repository's files at random (StarCoder2) or take
what is near by (Qwen2.5-Coder); a manifest, tests after modules and a target are ours.
"""

from __future__ import annotations

import hashlib
import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from etude.learn.corpus.record import TextRecord
from etude.learn.corpus.shape.diffs import Section, cut
from etude.learn.corpus.shape.imports import dependencies

Order = Literal["dependencies", "path", "random", "target"]
ORDERS: tuple[Order, ...] = ("dependencies", "path", "random", "target")

# Tokens; the lengths that long-context phases train at.
BUCKETS = (8_192, 32_768, 65_536, 131_072, 262_144)
# A README's first screens say what the project is; the rest of it comes with the documents.
README_HEAD_CHARS = 3_000
# The list of a large project's paths would fill a bucket by itself.
TREE_LINES = 500

README = re.compile(r"(?i)^readme(?:\.(?:md|rst|txt|markdown|adoc|org))?$")
TEST = re.compile(
    r"(?i)(?:^|/)(?:tests?|testing|__tests__|specs?|t)/|(?:^|/)(?:test_[^/]*|conftest\.py|[^/]*[._-](?:test|tests|spec)\.[^/]*)$"
)
DOCUMENT = re.compile(r"(?i)(?:^|/)docs?/|\.(?:md|markdown|rst|txt|adoc|org|tex|texi|pod|1|3|5|7|8)$")


@dataclass(frozen=True)
class ProjectString:
    """`bucket_tokens` is the smallest bucket that holds the text; `paths` are those in it, in order, a cut file's in each string it is in."""

    text: str
    project: str
    version: str
    order: Order
    bucket_tokens: int
    paths: tuple[str, ...]


def project_strings(
    records: Sequence[TextRecord],
    *,
    order: Order,
    chars_per_token: float,
    seed: int = 0,
    target: str = "",
    buckets: Sequence[int] = BUCKETS,
) -> list[ProjectString]:
    """The strings of one version of one project. `seed` draws the random order, and the target where `target` names no path.
    Raises ValueError for records of several projects, one path twice or an unknown target."""
    if not records:
        return []
    project, version = _the_project(records)
    if chars_per_token <= 0 or not buckets:
        raise ValueError(
            f"{chars_per_token} characters a token, buckets {list(buckets)}: give a number above 0 and at least one bucket"
        )
    files = {record.path: record.text for record in records if record.kind == "file"}
    history = [
        Section(record.path, record.text)
        for record in sorted(records, key=lambda r: (r.kind, r.path))
        if record.kind != "file"
    ]
    sections = {path: Section(path, text) for path, text in files.items()}
    manifest = [_listing(project, version, sorted({record.path for record in records})), *_readme_head(sections)]
    ordered = [sections[path] for path in _ordered(files, order, seed, target) if path in sections]
    whole = [*manifest, *history, *ordered] if order == "target" else [*manifest, *ordered, *history]
    known = {record.path for record in records}
    groups = cut(whole, int(max(buckets) * chars_per_token), from_the_end=order == "target")
    found = []
    for group in groups:
        text = "".join(map(str, group))
        bucket = min((b for b in buckets if len(text) <= b * chars_per_token), default=max(buckets))
        paths = tuple(dict.fromkeys(section.path for section in group if section.path in known))
        found.append(ProjectString(text, project, version, order, bucket, paths))
    return found


def _the_project(records: Sequence[TextRecord]) -> tuple[str, str]:
    names = {(record.project, record.version) for record in records}
    if len(names) > 1:
        raise ValueError(
            f"records of {len(names)} projects or versions ({sorted(names)[:3]} …): a project string is of one"
        )
    seen: set[tuple[str, str]] = set()
    for record in records:
        if (record.kind, record.path) in seen:
            raise ValueError(f"{record.id} comes twice: give each file of a project once")
        seen.add((record.kind, record.path))
    return names.pop()


def _listing(project: str, version: str, paths: Sequence[str]) -> Section:
    more = [f"… and {len(paths) - TREE_LINES} more"] if len(paths) > TREE_LINES else []
    return Section(f"project {project} {version}".rstrip(), "\n".join([*paths[:TREE_LINES], *more]) + "\n")


def _readme_head(sections: dict[str, Section]) -> list[Section]:
    """Takes the README's head out of `sections`; its rest stays, if there is one."""
    path = min(filter(README.match, sections), default="")
    if not path:
        return []
    whole = sections.pop(path)
    if len(whole.text) <= README_HEAD_CHARS:
        return [whole]
    end = whole.text.rfind("\n", 0, README_HEAD_CHARS) + 1 or README_HEAD_CHARS
    sections[path] = Section(path, whole.text[end:], continued=True)
    return [Section(path, whole.text[:end])]


def _ordered(files: Mapping[str, str], order: Order, seed: int, target: str) -> list[str]:
    if order == "path":
        return sorted(files)
    if order == "random":
        return sorted(files, key=lambda path: _draw(seed, path))
    graph = dependencies(files)
    if order == "dependencies":
        return sorted(dependency_order(graph), key=_place)  # a stable sort: within a place the order stays
    modules = [path for path in files if _place(path) == 1] or list(files)
    if target and target not in files:
        raise ValueError(f"target {target!r} is none of the project's {len(files)} files")
    chosen = target or min(modules, key=lambda path: _draw(seed, path), default="")
    distance = _distances(graph, chosen)
    far = len(files)
    return sorted(files, key=lambda path: (-distance.get(path, far), -_folders_apart(path, chosen), path))


def _place(path: str) -> int:
    """Modules, tests, documents."""
    if TEST.search(path):
        return 2
    return 3 if DOCUMENT.search(path) or README.match(path) else 1


def _draw(seed: int, path: str) -> bytes:
    return hashlib.blake2b(f"{seed}:{path}".encode("utf-8", "surrogatepass"), digest_size=8).digest()


def _distances(graph: Mapping[str, Sequence[str]], start: str) -> dict[str, int]:
    """Imports between a file and `start`, in either direction; files out of reach are left out."""
    neighbours: dict[str, set[str]] = {path: set(targets) for path, targets in graph.items()}
    for path, targets in graph.items():
        for found in targets:
            neighbours[found].add(path)
    distance = {start: 0} if start else {}
    edge = list(distance)
    while edge:
        edge = sorted({near for path in edge for near in neighbours[path]} - distance.keys())
        distance |= dict.fromkeys(edge, max(distance.values()) + 1)
    return distance


def _folders_apart(one: str, other: str) -> int:
    a, b = posixpath.dirname(one).split("/"), posixpath.dirname(other).split("/")
    return len(a) + len(b) - 2 * len(posixpath.commonprefix([a, b]))


# Tarjan's strongly connected components (SIAM J. Computing 1, 1972) come out dependencies first; without recursion, because a cycle may be
# thousands of files long. Paths are visited in sorted order, so the result depends only on the graph. A file's dependencies are
# directly before it; a queue (Kahn) would scatter them.


def dependency_order(graph: Mapping[str, Sequence[str]]) -> list[str]:
    """Each key once. `graph` is path -> paths that it depends on, all of them keys."""
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
