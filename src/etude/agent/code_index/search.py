"""A question answered from a view: ranked by words, and by an embedder's vectors as well if there are any.

Promise: the order is the same for the same living files, whatever happened before; equal scores come by path, then line.
"""

from __future__ import annotations

import heapq
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

import numpy as np
from numpy.typing import NDArray

from etude.agent.code_index.analysis import split_lines
from etude.agent.code_index.errors import IndexRefused
from etude.agent.code_index.hit import Hit
from etude.agent.code_index.languages import LANGUAGES
from etude.agent.code_index.ranking import FILLERS, QueryTerms, Weights, question, scores
from etude.agent.code_index.view import LivePart, View
from etude.agent.code_index.words import PART, WORD, expand, terms

# The lines of a chunk that answer a question best.


# Enough to see whether the place is right; `read` shows the rest.
LINES = 16
# A longer line is cut: one hit must not fill a context.
LONGEST_LINE = 240


def snippet(lines: Sequence[str], start: int, idf: Mapping[str, float]) -> tuple[str, int]:
    """At most LINES neighbouring lines of a chunk that starts at line `start`, those with the rarest words of the question, and
    the number of the first. A chunk that fits comes whole."""
    worth = [_worth(line, idf) for line in lines] if len(lines) > LINES else []
    first = max(range(len(worth) - LINES + 1), key=lambda at: (sum(worth[at : at + LINES]), -at)) if worth else 0
    shown = list(lines[first : first + LINES])
    while len(shown) > 1 and not shown[0].strip():
        shown.pop(0)
        first += 1
    return "\n".join(map(_cut, shown)).rstrip(), start + first


def _worth(line: str, idf: Mapping[str, float]) -> float:
    found = {term for word in WORD.findall(line) for term in expand(word) if term in idf}
    return sum(map(idf.__getitem__, sorted(found)))  # sorted: the same sum in every process


def _cut(line: str) -> str:
    return line if len(line) <= LONGEST_LINE else f"{line[:LONGEST_LINE]} … ({len(line)} characters)"


MOST_HITS = 200
# Ranked in full before the best are shown; deep enough for two lists to meet and for files to crowd each other out.
CANDIDATES = 200
# Hits of one file that count in full. Each further one must outrank the others by more, or a large file would hide them all.
PER_FILE = 2
FURTHER = 0.9
# The best places are often callers of what is sought: a function that they name, and whose name the question spells by half or more, comes
# next to them, if it is a candidate itself.
CALLERS = 5
CALLED = 0.99
# Reciprocal rank fusion (Cormack, Clarke and Büttcher 2009): score = sum over lists of 1 / (60 + rank).
FUSION = 60

# Files of tests by the naming of pytest, Jest, Go, RSpec and Maven; and the words of a question that is about them.
TEST_PATH = re.compile(
    r"(?:^|/)(?:tests?|testing|__tests__|spec)/|(?:^|/)(?:test_|conftest\.)[^/]*$|[._](?:test|spec)\.[a-z]+$"
)
TEST_WORDS = frozenset({"test", "spec", "fixtur", "conftest"})

# What programs write and read: records of any size, and text without a grammar that is long. A question that names it is about it.
DATA_PATH = re.compile(r"\.(?:csv|tsv|jsonl|ndjson|geojson|xml)$")
DATA_LANGUAGES = frozenset({"json", "yaml", "toml", "html", "text", "sql"})
DATA_TERMS = 2000
DATA_WORDS = frozenset({"json", "yaml", "toml", "html", "sql", "csv", "xml", "data", "dataset", "fixtur"})

# For each part of a view the similarity (C,) of its chunks to a question, or None where a part has no vectors.
Similarity = Callable[[View, str], Sequence[NDArray[np.floating] | None]]


@dataclass(frozen=True)
class Filter:
    """`under`: a folder or file, relative to the root, "" for all; `language`: one of LANGUAGES, "" for all."""

    under: str = ""
    language: str = ""

    @classmethod
    def of(cls, view: View, under: str | None, language: str | None) -> Filter:
        """Raises IndexRefused for a folder without indexed files and for a language that is none."""
        name = (language or "").lower()
        if name and name not in LANGUAGES:
            raise IndexRefused(f"language {language!r} is unknown; known are {', '.join(LANGUAGES)}")
        folder = relative(under or "")
        if folder and not any(
            a < b and p.alive_files[a:b].any() for p in view.parts for a, b in [p.segment.below(folder)]
        ):
            tops = sorted({path.split("/")[0] for path in view.places()})
            known = ", ".join(tops[:12]) + (" …" if len(tops) > 12 else "")
            raise IndexRefused(f"no indexed file lies under {under!r}; the root has {known or 'none at all'}")
        return cls(folder, name)

    def masks(self, view: View) -> list[NDArray[np.bool_]]:
        """Which chunks (C,) of each part may be answered."""
        made = []
        for part in view.parts:
            segment = part.segment
            mask = part.alive
            if self.under:
                first, last = segment.below(self.under)
                inside = np.zeros(segment.chunks, np.bool_)
                inside[segment.first_chunk[first] : segment.first_chunk[last]] = True
                mask = mask & inside
            if self.language:
                mask = mask & (segment.language == LANGUAGES.index(self.language))[segment.chunk_file]
            made.append(mask)
        return made


def relative(path: str) -> str:
    """A path below the root in the index's spelling; "" is the root. Raises IndexRefused for one that leads out of it."""
    parts = [part for part in PurePosixPath(path).parts if part != "."]
    if path.startswith("/") or ".." in parts:
        raise IndexRefused(f"{path!r} leads out of the root; name a folder relative to it")
    return "/".join(parts)


def search(
    view: View, query: str, *, limit: int, wanted: Filter, weights: Weights, similarity: Similarity | None = None
) -> list[Hit]:
    """At most `limit` hits, best first. Raises IndexRefused for a question without words and for a limit out of range."""
    if not 1 <= limit <= MOST_HITS:
        raise IndexRefused(f"limit is {limit}; ask for 1 to {MOST_HITS} hits")
    if not WORD.search(query):
        raise IndexRefused(f"the query {query[:80]!r} has no word in it; describe what the code does, or name it")
    asked = question(view, query)
    masks = wanted.masks(view)
    by_words = [np.where(mask, found, 0.0) for found, mask in zip(scores(view, asked, weights), masks, strict=True)]
    ranked = _ordered(view, _adjusted(view, asked, weights, _best(by_words)))
    ranked = _ordered(view, _followed(view, asked, ranked))
    if similarity is not None:
        by_meaning = [
            np.where(mask, found, 0.0) if found is not None else np.zeros(len(mask))
            for found, mask in zip(similarity(view, query), masks, strict=True)
        ]
        ranked = _ordered(view, _fused(ranked, _ordered(view, _best(by_meaning))))
    return [_hit(view, asked, *place, score) for place, score in _spread(view, ranked, limit)]


Place = tuple[int, int]  # part, chunk
Scored = tuple[Place, float]


def _best(found: Sequence[NDArray[np.floating]]) -> list[Scored]:
    """The CANDIDATES best positive ones, and all that are level with the last of them: a tie must not be cut by how parts lie."""
    heads = [np.partition(s, -CANDIDATES)[-CANDIDATES:] if len(s) > CANDIDATES else s for s in found]
    best = heapq.nlargest(CANDIDATES, (float(score) for head in heads for score in head if score > 0))
    if not best:
        return []
    return [
        ((part, int(chunk)), float(s[chunk])) for part, s in enumerate(found) for chunk in np.flatnonzero(s >= best[-1])
    ]


def _adjusted(view: View, asked: QueryTerms, weights: Weights, found: Iterable[Scored]) -> list[Scored]:
    """Definitions whose own name the question spells get more, by the share of the name's words that it has; tests and data less, unless it
    is about them."""
    made = []
    about_tests, about_data = not TEST_WORDS.isdisjoint(asked.asked), not DATA_WORDS.isdisjoint(asked.asked)
    for (part, chunk), score in found:
        segment = view.parts[part].segment
        file = int(segment.chunk_file[chunk])
        factor = 1 + weights.symbol_bonus * _share(asked, _name(view, (part, chunk)))
        factor *= weights.tests if not about_tests and TEST_PATH.search(segment.paths[file]) else 1.0
        factor *= weights.data if not about_data and _is_data(view.parts[part], file) else 1.0
        made.append(((part, chunk), score * factor))
    return made


def _followed(view: View, asked: QueryTerms, ranked: Sequence[Scored]) -> list[Scored]:
    """Definitions that the best places name get nearly the score of the place that names them."""
    raised: dict[str, float] = {}
    for (part, chunk), score in ranked[:CALLERS]:
        segment = view.parts[part].segment
        if TEST_PATH.search(segment.paths[segment.chunk_file[chunk]]):
            continue
        found = segment.chunk(chunk)
        lines = split_lines(segment.text(int(segment.chunk_file[chunk])))[found.start - 1 : found.end]
        for name in {*WORD.findall("\n".join(lines))} - {found.symbol.rpartition(".")[2]}:
            raised[name] = max(raised.get(name, 0.0), CALLED * score)
    spelled = {
        name: score for name, score in raised.items() if len(PART.findall(name)) > 1 and 2 * _share(asked, name) >= 1
    }
    return [(place, max(score, spelled.get(_name(view, place), 0.0))) for place, score in ranked]


def _name(view: View, place: Place) -> str:
    return view.parts[place[0]].segment.chunk(place[1]).symbol.rpartition(".")[2]


def _share(asked: QueryTerms, name: str) -> float:
    """Of a name's words, those that the question has."""
    words = [word for word in terms(name) if word not in FILLERS]
    return sum(word in asked.asked for word in words) / len(words) if words else 0.0


def _is_data(part: LivePart, file: int) -> bool:
    segment = part.segment
    long = segment.language_of(file) in DATA_LANGUAGES and part.file_length[file] > DATA_TERMS
    return bool(long or DATA_PATH.search(segment.paths[file]))


def _fused(first: Sequence[Scored], second: Sequence[Scored]) -> list[Scored]:
    made: dict[Place, float] = {}
    for ranked in (first, second):
        for rank, (place, _) in enumerate(ranked, 1):
            made[place] = made.get(place, 0.0) + 1 / (FUSION + rank)
    return list(made.items())


def _ordered(view: View, found: Iterable[Scored]) -> list[Scored]:
    def key(scored: Scored) -> tuple[float, str, int]:
        (part, chunk), score = scored
        segment = view.parts[part].segment
        return -score, segment.paths[segment.chunk_file[chunk]], chunk  # chunks of one file are in the order of lines

    return sorted(found, key=key)


def _spread(view: View, ranked: Iterable[Scored], limit: int) -> list[Scored]:
    """The best. Beyond PER_FILE of a file each counts FURTHER times the one before it; a file that is equal to one that comes first comes
    after all that are not."""
    weighed: list[tuple[bool, float, int, Scored]] = []
    seen: Counter[Place] = Counter()
    first: dict[bytes, Place] = {}
    for number, (place, score) in enumerate(ranked):
        segment = view.parts[place[0]].segment
        file = place[0], int(segment.chunk_file[place[1]])
        seen[file] += 1
        copy = first.setdefault(segment.digest(file[1]), file) != file
        weighed.append((copy, -score * FURTHER ** max(seen[file] - PER_FILE, 0), number, (place, score)))
    return [scored for _, _, _, scored in sorted(weighed)[:limit]]


def _hit(view: View, asked: QueryTerms, part: int, chunk: int, score: float) -> Hit:
    segment = view.parts[part].segment
    file = int(segment.chunk_file[chunk])
    found = segment.chunk(chunk)
    lines = split_lines(segment.text(file))[found.start - 1 : found.end]
    text, first = snippet(lines, found.start, asked.idf)
    language = segment.language_of(file)
    return Hit(segment.paths[file], found.start, found.end, found.symbol, found.kind, language, score, text, first)
