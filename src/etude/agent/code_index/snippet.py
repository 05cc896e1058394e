"""The lines of a chunk that answer a question best."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from etude.agent.code_index.words import WORD, expand

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
