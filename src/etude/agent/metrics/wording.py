"""Rules over words: claims that tests are green, questions, and thinking left in comments. Rules, not a model: they cost
nothing and give the same count every time, and they miss what is said in other words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_CLAIM = re.compile(
    r"\b(?:(?:all|both|the|every|unit|existing|new|[0-9]+)\s+){0,3}(?:tests?|test suite|suite|checks)\s+(?:now\s+|all\s+|still\s+|also\s+)*"
    r"(?:pass(?:es|ed)?\b|(?:are|is)\s+(?:now\s+|all\s+)*(?:green|passing)\b|succeed(?:s|ed)?\b)|\b[0-9]+ passed\b(?! and [0-9]+ failed)",
    re.IGNORECASE,
)
# What turns a claim into a plan, a condition or a denial, within the same sentence before it.
_NO_CLAIM = re.compile(
    r"\b(?:if|until|unless|whether|when|once|so that|should|would|will|must|to|make|makes|making|let|ensure|verify|check|see|"
    r"not|no|none|cannot|can't|don't|doesn't|didn't|n't|before|expect\w*|hope\w*|need\w*)\b(?:(?![.;!?]\s|\n).)*\Z",
    re.IGNORECASE,
)
SENTENCE_CHARS = 500  # a denial is nearer to what it denies
_COMMENT = re.compile(r"(?:^\s*\*\s|#+|//+|/\*+|<!--|--\s)\s*(?P<text>[^\n]*)")
_THOUGHT = re.compile(
    r"(?:oh\s+)?(?:wait\s*[-–,.!:…]|hmm+\b|oops\b|actually,|hold on\b|on second thought|let me\b|let's (?:see|try|think|check)\b|"
    r"(?:i|we) (?:think|guess|need to|should|will|must|can|could|was|am|'ll|'m|want to|now|first)\b|i'(?:ll|m|ve|d)\b|"
    r"(?:now|first|next|so|then|but|and|okay|ok),? (?:i|we)\b|not sure\b|maybe (?:i|we)\b|the user (?:wants|asked|said)\b)",
    re.IGNORECASE,
)


def claims_green(text: str) -> int:
    """How often a text says that tests pass; plans, conditions and denials are not counted."""
    return sum(1 for match in _CLAIM.finditer(text) if not _NO_CLAIM.search(_before(text, match.start())))


def _before(text: str, end: int) -> str:
    """The words before a place, SENTENCE_CHARS at most: a model that repeats itself makes one sentence of a whole turn."""
    if end <= SENTENCE_CHARS:
        return text[:end]
    words = text[end - SENTENCE_CHARS - 1 : end]
    return words[1:] if not words[0].isalnum() else words.partition(" ")[2]


def asks(text: str) -> bool:
    """Whether a text that ends a turn ends with a question."""
    lines = [line for line in text.splitlines() if line.strip()]
    return bool(lines) and lines[-1].rstrip(" *_`\"')").endswith("?")


def thought_comments(lines: Iterable[str]) -> int:
    """Lines whose comment talks to itself."""
    found = (match for line in lines if (match := _COMMENT.search(line)))
    return sum(1 for match in found if _THOUGHT.match(match["text"]))
