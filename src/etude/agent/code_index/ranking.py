"""BM25 over fields, of the chunk and of its file together.

A textbook's BM25F (Robertson, Zaragoza and Taylor 2004) weighs a term's occurrences by field before it saturates them:

    tf~ = sum_f weight_f tf_f        score = sum_t idf_t tf~ (k1 + 1) / (tf~ + k1 (1 - b + b length / mean length))

Here lengths are not normalised by field (a symbol's name is as long as it is), and a chunk's score is its own plus a share of its file's,
counted the same way over the file's chunks: what a function is about is also in the class, the imports and the comments around it.
The constants were chosen on one sample of docstrings and reported on another (benchmarks/index.py).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from etude.agent.code_index.segment import Postings
from etude.agent.code_index.view import LivePart, View
from etude.agent.code_index.words import WORD, terms

Scores = NDArray[np.float64]
# A question's rarest terms; the others of a pasted page would cost time and say little.
MOST_TERMS = 24
# Words in more than this share of all chunks (self, return, import) separate nothing; they count only if a question has no other.
COMMON = 0.25
# Words that make a sentence of a question and say little of what is sought. They count a little, since code may mean them (`before`, `handle`);
# not where they are part of a name (`insert_before`).
FILLERS = frozenset(
    """a about after all an and any are as at be been before being between both but by can could did do does doing done during each every for from
    get gets got had has have how i if in into is it its just let like make makes me more most need no not of on one only or our out over own per
    please should show so some such than that the their them then there these they this those through to too under up us use used uses using
    very via was we were what when where whether which while who whom whose why will with within without would you your
    code defined find found function handle handled handles handling happen happens implement implemented implements located method place
    work works""".split()
)
FILLER_WEIGHT = 0.25


@dataclass(frozen=True)
class Weights:
    """`fields`: body, symbol, path, doc (multiples of a quarter, so that sums are exact). `k1` and `b` are the textbook's.
    `file_share`: what a file's score adds to its chunks'. `symbol_bonus`: the share by which a definition
    gains whose name the question spells out whole. `tests`, `data`: what is left of the score of a chunk of a test file, or of data.
    """

    fields: tuple[float, float, float, float] = (1.0, 3.0, 3.0, 1.0)
    k1: float = 1.2
    b: float = 0.75
    file_share: float = 0.5
    symbol_bonus: float = 0.3
    tests: float = 0.8
    data: float = 0.5
    coverage: float = 0.3


@dataclass(frozen=True)
class Term:
    """One term of a question, found: `postings` by part of the view. `idf` over chunks, `file_idf` over files, in nats."""

    term: str
    postings: Sequence[Postings | None]
    idf: float
    file_idf: float

    def lighter(self) -> Term:
        """As a filler of the question."""
        return replace(self, idf=FILLER_WEIGHT * self.idf, file_idf=FILLER_WEIGHT * self.file_idf)


@dataclass(frozen=True)
class QueryTerms:
    """The terms of a question that the view knows, rarest first. `asked` are all of them, also unknown ones."""

    asked: frozenset[str]
    found: list[Term] = field(default_factory=list)

    @property
    def idf(self) -> dict[str, float]:
        return {term.term: term.idf for term in self.found}


def question(view: View, text: str) -> QueryTerms:
    """What of a text can be looked up in a view."""
    words = list(terms(text))
    telling_words = terms(" ".join(word for word in WORD.findall(text) if word.lower() not in FILLERS))
    known = [term for word in words if (term := _look_up(view, word)) is not None]
    telling = [term for term in known if _share(view, term) <= COMMON] or known
    weighed = [term if term.term in telling_words or not telling_words else term.lighter() for term in telling]
    return QueryTerms(frozenset(words), sorted(weighed, key=lambda term: (-term.idf, term.term))[:MOST_TERMS])


def scores(view: View, asked: QueryTerms, weights: Weights) -> list[Scores]:
    """(C,) for each part of the view: 0 where no term occurs."""
    mean, file_mean = view.length / max(view.chunks, 1) or 1.0, view.length / max(view.files, 1) or 1.0
    return [_part_scores(part, n, asked, weights, mean, file_mean) for n, part in enumerate(view.parts)]


def _part_scores(part: LivePart, number: int, asked: QueryTerms, w: Weights, mean: float, file_mean: float) -> Scores:
    segment, fields = part.segment, np.array(w.fields)
    norm = w.k1 * (1 - w.b + w.b * segment.length / mean)  # (C,)
    file_norm = w.k1 * (1 - w.b + w.b * part.file_length / file_mean)  # (F,)
    of_chunk, of_file, cover = np.zeros(segment.chunks), np.zeros(segment.files), np.zeros(segment.chunks)
    for term in asked.found:
        postings = term.postings[number]
        if postings is None:
            continue
        at, tf = postings.chunks, postings.counts @ fields  # (n,)
        of_chunk[at] += term.idf * (w.k1 + 1) * tf / (tf + norm[at])
        cover[at] += term.idf
        file_tf = np.bincount(segment.chunk_file[at], weights=tf, minlength=segment.files)
        of_file += term.file_idf * (w.k1 + 1) * file_tf / (file_tf + file_norm)
    whole = sum(term.idf for term in asked.found) or 1.0
    factor = 1 - w.coverage + w.coverage * cover / whole
    return np.where(of_chunk > 0, (of_chunk + w.file_share * of_file[segment.chunk_file]) * factor, 0.0)


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
