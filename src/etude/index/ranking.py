"""BM25 over fields, of the chunk and of its file together.

A textbook's BM25F (Robertson, Zaragoza and Taylor 2004) weighs a term's occurrences by field before it saturates them:

    tf~ = sum_f weight_f tf_f        score = sum_t idf_t tf~ (k1 + 1) / (tf~ + k1 (1 - b + b length / mean length))

Here lengths are not normalised by field (a symbol's name is as long as it is), and a chunk's score is its own plus a share of its file's,
counted the same way over the file's chunks: what a function is about also stands in the class, the imports and the comments around it.
The constants were chosen on one sample of docstrings and reported on another (benchmarks/index.py).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from etude.index.segment import Postings
from etude.index.view import LivePart, View
from etude.index.words import terms

Scores = NDArray[np.float64]
# A question's rarest terms; the others of a pasted page would cost time and say little.
MOST_TERMS = 24
# Words in more than this share of all chunks (self, return, import) separate nothing; they count only if a question has no other.
COMMON = 0.25


@dataclass(frozen=True)
class Weights:
    """`fields`: body, symbol, path, doc (multiples of a quarter, so that sums are exact). `k1` and `b` are the textbook's.
    `file_share`: what a file's score adds to its chunks'. `symbol_bonus`: the share by which a definition
    gains whose name the question spells out whole. `tests`: what is left of the score of a test file's chunk.
    """

    fields: tuple[float, float, float, float] = (1.0, 3.0, 3.0, 1.0)
    k1: float = 1.2
    b: float = 0.75
    file_share: float = 0.5
    symbol_bonus: float = 0.3
    tests: float = 0.8


@dataclass(frozen=True)
class Term:
    """One term of a question, found: `postings` by part of the view. `idf` over chunks, `file_idf` over files, in nats."""

    term: str
    postings: Sequence[Postings | None]
    idf: float
    file_idf: float


@dataclass(frozen=True)
class Question:
    """The terms of a question that the view knows, rarest first. `asked` are all of them, also unknown ones."""

    asked: frozenset[str]
    found: list[Term] = field(default_factory=list)

    @property
    def idf(self) -> dict[str, float]:
        return {term.term: term.idf for term in self.found}


def question(view: View, text: str) -> Question:
    """What of a text can be looked up in a view."""
    words = list(terms(text))
    known = [term for word in words if (term := _look_up(view, word)) is not None]
    telling = [term for term in known if _share(view, term) <= COMMON] or known
    return Question(frozenset(words), sorted(telling, key=lambda term: (-term.idf, term.term))[:MOST_TERMS])


def scores(view: View, asked: Question, weights: Weights) -> list[Scores]:
    """(C,) for each part of the view: 0 where no term stands."""
    mean, file_mean = view.length / max(view.chunks, 1) or 1.0, view.length / max(view.files, 1) or 1.0
    return [_part_scores(part, n, asked, weights, mean, file_mean) for n, part in enumerate(view.parts)]


def _part_scores(part: LivePart, number: int, asked: Question, w: Weights, mean: float, file_mean: float) -> Scores:
    segment, fields = part.segment, np.array(w.fields)
    norm = w.k1 * (1 - w.b + w.b * segment.length / mean)  # (C,)
    file_norm = w.k1 * (1 - w.b + w.b * part.file_length / file_mean)  # (F,)
    of_chunk, of_file = np.zeros(segment.chunks), np.zeros(segment.files)
    for term in asked.found:
        postings = term.postings[number]
        if postings is None:
            continue
        at, tf = postings.chunks, postings.counts @ fields  # (n,)
        of_chunk[at] += term.idf * (w.k1 + 1) * tf / (tf + norm[at])
        file_tf = np.bincount(segment.chunk_file[at], weights=tf, minlength=segment.files)
        of_file += term.file_idf * (w.k1 + 1) * file_tf / (file_tf + file_norm)
    return np.where(of_chunk > 0, of_chunk + w.file_share * of_file[segment.chunk_file], 0.0)


def _look_up(view: View, word: str) -> Term | None:
    postings = [part.postings(word) for part in view.parts]
    chunks = sum(len(p.chunks) for p in postings if p is not None)
    if not chunks:
        return None
    files = sum(
        int(np.count_nonzero(np.diff(part.segment.chunk_file[p.chunks], prepend=-1)))
        for part, p in zip(view.parts, postings, strict=True)
        if p is not None and len(p.chunks)
    )
    return Term(word, postings, _idf(view.chunks, chunks), _idf(view.files, files))


def _share(view: View, term: Term) -> float:
    return sum(len(p.chunks) for p in term.postings if p is not None) / view.chunks


def _idf(total: int, having: int) -> float:
    """Positive for every word, as Lucene's."""
    return math.log1p((total - having + 0.5) / (having + 0.5))
