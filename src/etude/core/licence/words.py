"""A licence text as words that can be compared: without comment marks, markup, bullets, copyright lines and the spellings that SPDX's
matching guidelines (annex "License matching guidelines") call equal."""

from __future__ import annotations

import re
from collections import Counter

# A line that only says whose the work is; a following line that goes on with names is caught if it holds a year or an address.
COPYRIGHT = re.compile(
    r"^[^\w\n]*(?:portions(?: of this \w+)?(?: are)?\s+)?(?:copyright\b|\(c\)|©|&copy;)(?![^\n]*\b(?:notice|law"
    r"|holder|owner|license|permission)s?\b)[^\n]*$"
    r"|^[^\w\n]*all rights reserved\.?[^\w\n]*$|^[^\w\n]*(?:19|20)\d\d\b[^\n]{0,80}$"
    r"|^[^\w\n]{0,40}[^\n]{0,60}<[^\s@<>]{1,64}+@[^\s<>]{1,255}+>[^\w\n]*$",
    re.IGNORECASE | re.MULTILINE,
)
COMMENT = re.compile(
    r"^[ \t]*(?:#+|//+[!/]?|/?\*+/?|;+|--+|%+|dnl\b|rem\b|\.\.|!+|>|\|)[ \t]?", re.IGNORECASE | re.MULTILINE
)
MARKUP = re.compile(r"<!--|-->|<[/a-zA-Z][^>\n]{0,120}>|https?://\S+|\]\([^)\s]*\)|&\w+;")
BULLET = re.compile(
    r"^[ \t]*(?:[-*o•·]|\(?(?:\d{1,2}|[a-z]|[ivx]{1,4})[.)]|\d{1,2}\.\d{1,2}\.?)[ \t]+", re.IGNORECASE | re.MULTILINE
)
RIGHTS = re.compile(r"\ball rights reserved\b\.?", re.IGNORECASE)
WORD = re.compile(r"[a-z0-9]+")
EQUAL = {
    "licence": "license", "licences": "licenses", "licenced": "licensed", "sublicence": "sublicense", "owner": "holder", "owners": "holders",
    "favour": "favor", "organisation": "organization", "merchantibility": "merchantability", "acknowledgement": "acknowledgment",
}  # fmt: skip


def words(text: str) -> list[str]:
    """The words of a licence text that count, in lower case."""
    text = text.replace("’", "'").replace("“", '"').replace("”", '"').replace("\f", "\n")
    text = re.sub(r"(?<=\d)\+", " plus ", MARKUP.sub(" ", text))
    text = COMMENT.sub("", text)
    text = COPYRIGHT.sub("", text)
    text = BULLET.sub("", text)
    text = RIGHTS.sub("", text).lower().replace("'", "").replace("(s)", "s")
    found: list[str] = WORD.findall(text)
    return [EQUAL.get(word, word) for word in found]


def pairs(found: list[str]) -> list[tuple[str, str]]:
    """Neighbouring words. Two texts with the same words in another order differ in them."""
    return list(zip(found, found[1:], strict=False))


def dice(one: Counter[tuple[str, str]], other: Counter[tuple[str, str]]) -> float:
    """Twice what is common over the sum of both (Dice 1945), repetitions counted."""
    total = one.total() + other.total()
    return 2 * (one & other).total() / total if total else 0.0
