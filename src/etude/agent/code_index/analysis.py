"""A text as the index sees it: chunks, and for each chunk the words that stand in which field."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from etude.agent.code_index.chunking import Chunk, chunks, sections
from etude.agent.code_index.definitions import Syntax, TooHard
from etude.agent.code_index.grammar_process import syntax_of
from etude.agent.code_index.languages import GRAMMARS, grammar_name, language_of
from etude.agent.code_index.words import WORD

# The columns of a posting, in the order of the store: code, names of the definition, path, comments and docstrings.
FIELDS = ("body", "symbol", "path", "doc")


@dataclass(frozen=True)
class AnalysedChunk:
    """`fields`: the words (words.WORD) that stand in each of FIELDS, as they come; the builder makes terms of them."""

    chunk: Chunk
    fields: tuple[list[str], list[str], list[str], list[str]]


@dataclass(frozen=True)
class AnalysedFile:
    path: str
    language: str
    digest: bytes
    text: str
    chunks: list[AnalysedChunk]

    @property
    def places(self) -> list[Chunk]:
        return [made.chunk for made in self.chunks]


def analyse(path: str, text: str, digest: bytes) -> AnalysedFile:
    """The whole of what is indexed of a file. Deterministic: the same path and text give the same chunks and words."""
    grammar = grammar_name(path, text)
    lines = split_lines(text)
    source = text.encode()
    syntax = _syntax(grammar, source, lines)
    starts = [0, *accumulate(len(line.encode()) + 1 for line in lines)]
    path_words = WORD.findall(path.rsplit(".", 1)[0])
    found = []
    for chunk in chunks(lines, syntax.definitions):
        body, doc = _parted(source, starts[chunk.start - 1], starts[chunk.end], syntax.prose)
        fields = WORD.findall(body), WORD.findall(chunk.symbol), path_words, WORD.findall(doc)
        found.append(AnalysedChunk(chunk, fields))
    return AnalysedFile(path, language_of(grammar), digest, text, found)


def _syntax(grammar: str, source: bytes, lines: Sequence[str]) -> Syntax:
    """What the text's grammar finds; nothing, so that it is cut by lines, where there is none or it gives up."""
    if grammar not in GRAMMARS:
        return Syntax(sections(lines) if grammar == "markdown" else [], [])
    try:
        return syntax_of(grammar, source)
    except TooHard:
        return Syntax([], [])


def split_lines(text: str) -> list[str]:
    """Lines as editors and tree-sitter count them: only \\n ends one; an empty rest after the last is none."""
    lines = text.split("\n")
    return lines[:-1] if lines and not lines[-1] else lines


def _parted(source: bytes, begin: int, end: int, prose: Sequence[tuple[int, int]]) -> tuple[str, str]:
    """[begin, end) of the source without its prose, and its prose alone."""
    body, doc, at = [], [], begin
    for first, last in _within(prose, begin, end):
        body.append(source[at:first])
        doc.append(source[first:last])
        at = last
    body.append(source[at:end])
    return b" ".join(body).decode(errors="replace"), b" ".join(doc).decode(errors="replace")


def _within(ranges: Sequence[tuple[int, int]], begin: int, end: int) -> Iterator[tuple[int, int]]:
    """The parts of disjoint ordered ranges that lie in [begin, end)."""
    at = max(bisect_left(ranges, (begin, begin)) - 1, 0)
    while at < len(ranges) and ranges[at][0] < end:
        first, last = max(ranges[at][0], begin), min(ranges[at][1], end)
        if first < last:
            yield first, last
        at += 1
