"""Fill-in-the-middle: a short document is cut in three and reordered, so that the model learns to write the middle.

After Bavarian et al. 2022, "Efficient Training of Language Models to Fill in the Middle" (section 3; SPM in the second variant of its
appendix, where both orders begin with the same token), with two changes: half of the cuts in Python run along a node of the syntax tree, so
that the middle is something whole; and the choices come from a hash of (seed, digest), not from a stream, so that a document
is cut alike in every run and order.

    PSM   <prefix> p <suffix> s <middle> m
    SPM   <prefix> <suffix> s <middle> p m

The answer is a list of pieces, special tokens apart from text: the encoder encodes text with special tokens switched off,
so that no document can forge one, and encodes p and m apart, as they are when the model is asked.
"""

from __future__ import annotations

import ast
import bisect
import hashlib
import re
import warnings
from dataclasses import dataclass

from etude.core.bounded_python import parse_python

# Beyond some 8,000 tokens of code a document is kept for reading order: cutting is for short ones only.
LONGEST_CHARS = 24_000
# Less than a line or two has no middle worth the name.
SHORTEST_CHARS = 64
# Single names and numbers are no middle either.
SHORTEST_NODE_CHARS = 8

# A statement at the left margin; those that go on with one before are not the beginning of one.
STATEMENT = re.compile(r"^(?=[A-Za-z_@])(?!(?:else|elif|except|finally)\b)", re.MULTILINE)


@dataclass(frozen=True)
class Special:
    """A special token, by the name or id that the tokenizer's owner gave it."""

    token: str | int


Piece = str | Special


@dataclass(frozen=True)
class FimTokens:
    prefix: Special
    suffix: Special
    middle: Special


def fim(
    text: str,
    digest: str,
    tokens: FimTokens,
    *,
    seed: int,
    rate: float,
    language: str = "",
    longest_chars: int = LONGEST_CHARS,
) -> list[Piece]:
    """The document in pieces: [text] as it was, or cut with chance `rate` if it is no longer than `longest_chars`. `unfim` undoes it."""
    if not 0 <= rate <= 1:
        raise ValueError(f"fill-in-the-middle rate {rate}: give a share from 0 to 1")
    if not SHORTEST_CHARS <= len(text) <= longest_chars:
        return [text]
    whether, order, level, one, other = _draws(seed, digest)
    if whether >= rate:
        return [text]
    span = _node_span(text, one, other) if language == "python" and level < 0.5 else None
    start, end = span or sorted((int(one * (len(text) + 1)), int(other * (len(text) + 1))))
    prefix, middle, suffix = text[:start], text[start:end], text[end:]
    if order < 0.5:
        return [tokens.prefix, prefix, tokens.suffix, suffix, tokens.middle, middle]
    return [tokens.prefix, tokens.suffix, suffix, tokens.middle, prefix, middle]


def unfim(pieces: list[Piece]) -> str:
    """The document that `fim` was given."""
    text = [piece for piece in pieces if isinstance(piece, str)]
    if len(text) == 1:
        return text[0]
    suffix_first = isinstance(pieces[1], Special)
    return text[1] + text[2] + text[0] if suffix_first else text[0] + text[2] + text[1]


def _draws(seed: int, digest: str) -> list[float]:
    """Five numbers from 0 to below 1."""
    data = hashlib.blake2b(f"{seed}:{digest}".encode(), digest_size=40).digest()
    return [(int.from_bytes(data[i : i + 8], "big") >> 11) / (1 << 53) for i in range(0, 40, 8)]


def _node_span(text: str, where: float, depth: float) -> tuple[int, int] | None:
    """One of the nodes around a point: drawn among those that hold it, so that a node's chance grows with its length. Only the statement
    at the left margin that holds the point is parsed. None where there is no node."""
    point = int(where * len(text))
    starts = [found.start() for found in STATEMENT.finditer(text)]
    index = bisect.bisect_right(starts, point)
    if not index:
        return None
    base = starts[index - 1]
    part = text[base : starts[index] if index < len(starts) else len(text)]
    if "\r" in part or "\f" in part or "\0" in part:  # the parser counts lines or columns otherwise
        return None
    try:
        with warnings.catch_warnings(action="ignore"):  # its author's doubtful escapes are nothing to tell our user
            node: ast.AST = parse_python(part)
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # not Python after all: cut at characters
        return None
    lines = part.split("\n")
    begins = [0]
    for line in lines:
        begins.append(begins[-1] + len(line) + 1)
    spans: list[tuple[int, int]] = []
    while inner := _around(node, point - base, lines, begins):
        node, span = inner
        if span[1] - span[0] >= SHORTEST_NODE_CHARS:
            spans.append(span)
    if not spans:
        return None
    start, end = spans[int(depth * len(spans))]
    return base + start, base + end


def _around(node: ast.AST, point: int, lines: list[str], begins: list[int]) -> tuple[ast.AST, tuple[int, int]] | None:
    """The child that holds the point, and its characters from and to."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.stmt | ast.expr | ast.arg | ast.keyword | ast.excepthandler | ast.alias):
            inner = _around(child, point, lines, begins)  # arguments and the like have no place of their own
            if inner:
                return inner
            continue
        if child.end_lineno is None or child.end_col_offset is None:
            continue
        start = begins[child.lineno - 1] + _column(lines[child.lineno - 1], child.col_offset)
        end = begins[child.end_lineno - 1] + _column(lines[child.end_lineno - 1], child.end_col_offset)
        if start <= point < end:
            return child, (start, end)
    return None


def _column(line: str, byte: int) -> int:
    """Characters before this byte of the line's UTF-8: the parser counts bytes."""
    return (
        byte if line.isascii() else len(line.encode("utf-8", "surrogatepass")[:byte].decode("utf-8", "surrogatepass"))
    )
