"""Text as terms: identifiers are taken apart (`parseConfig`, `parse_config`, `HTTPServer`), also kept whole, and stemmed lightly.

The same function reads code, paths and queries, so that "parsing the configs", `parse_config` and `ParseConfig` meet. Differs from a textbook
stemmer (Porter 1980): only plural, past, -ing and final e go, since the rest joins names that programmers keep apart (`valid`, `validate`).
"""

from __future__ import annotations

import re
from collections import Counter
from functools import lru_cache

WORD = re.compile(r"\w+")
# Runs of capitals end before a capitalised part (HTTPServer: HTTP, Server); letters beyond ASCII count as small ones.
PART = re.compile(r"[A-Z]+(?=[A-Z][^\W\d_A-Z])|[A-Z]?[^\W\d_A-Z]+|[A-Z]+|\d+")
# Longer runs are digests and encoded data, which no query names.
LONGEST_WORD = 80
# The width of the store's term column; what is longer is cut, in the index and in queries alike.
TERM_BYTES = 32
# Distinct words of a large repository; each costs about 200 bytes here and saves some 3 µs whenever it is seen again.
REMEMBERED_WORDS = 1 << 18


def terms(text: str) -> Counter[str]:
    """How often each term occurs in the text."""
    found: dict[str, int] = {}
    for word, count in Counter(WORD.findall(text)).items():
        for term in expand(word):
            found[term] = found.get(term, 0) + count
    return Counter(found)


@lru_cache(REMEMBERED_WORDS)
def expand(word: str) -> tuple[str, ...]:
    """The terms of one identifier or word: its stemmed parts, and the whole if it has several. Single letters are left out."""
    if len(word) > LONGEST_WORD:
        return ()
    parts = [part.lower() for part in PART.findall(word)]
    found = [cut(stem(part)) for part in parts if len(part) > 1]
    if len(parts) > 1:
        found.append(cut("".join(parts)))  # the name, however it joins its parts
    return tuple(dict.fromkeys(found))


def stem(word: str) -> str:
    """A lower-case word without its plural, -ed, -ing and final e; words of three letters and fewer stay as they are."""
    if len(word) <= 3:
        return word
    word = _singular(word)
    for ending, shortest in (("ing", 6), ("ed", 5)):
        if word.endswith(ending) and len(word) >= shortest:
            word = _undoubled(word.removesuffix(ending))
            break
    return word.removesuffix("e") if len(word) > 3 else word


def cut(term: str) -> str:
    """At most TERM_BYTES bytes of UTF-8."""
    if len(term) <= TERM_BYTES and term.isascii():
        return term
    return term.encode()[:TERM_BYTES].decode(errors="ignore")


def _singular(word: str) -> str:
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith(("sses", "shes", "ches", "xes")):
        return word[:-2]
    if word.endswith("s") and not word.endswith(("ss", "us", "is")):
        return word[:-1]
    return word


def _undoubled(word: str) -> str:
    """running, runn, run; but call stays call."""
    return word[:-1] if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "lsz" else word
