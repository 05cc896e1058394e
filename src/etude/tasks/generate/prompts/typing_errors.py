"""Errors as fingers make them: a neighbouring key, two letters swapped, one left out, one struck twice, a space too late.

Only plain words of prose are touched, of four letters at least, never names of code, numbers, quoted texts or words with a capital
inside: what is said stays true, it is only badly typed.
"""

from __future__ import annotations

import random
import re

# Left and right neighbours, and those above and below, on the QWERTY layout.
ROWS = ("qwertyuiop", "asdfghjkl", "zxcvbnm")
# Of words that may be hit: people in a hurry mistype about one word in ten (Dhakal et al., 136 million keystrokes, CHI 2018: 1.2 % of
# keystrokes left uncorrected on average, with words of five letters and hasty typists at the upper end).
RATE = 0.1
_PLAIN = re.compile(r"[A-Za-z][a-z]{3,}")
_SPAN = re.compile(r"`[^`]*`")
_KEPT = re.compile(r"\"[^\"]*\"|'[^'\s]*'|\S*[\d_./\\(){}\[\]<>=:;@#$%^&*+|~-]\S*")


def neighbours(letter: str) -> str:
    """Keys next to this one; a key of the next row lies half a key further right."""
    for row, keys in enumerate(ROWS):
        if (place := keys.find(letter)) >= 0:
            adjacent = [keys[place - 1 : place], keys[place + 1 : place + 2]] if place else [keys[1:2]]
            above = [ROWS[row - 1][place : place + 2]] if row else []
            below = [ROWS[row + 1][max(0, place - 1) : place + 1]] if row < 2 else []
            return "".join([*adjacent, *above, *below])
    return ""


def mistype(word: str, rng: random.Random) -> str:
    """The word with one error; its first letter stays, as in nearly all real ones."""
    place = rng.randrange(1, len(word) - 1)
    letter, after = word[place], word[place + 1]
    kind = rng.choice(("neighbour", "swap", "drop", "double", "swap"))
    if kind == "swap" and letter != after:
        return word[:place] + after + letter + word[place + 2 :]
    if kind == "drop":
        return word[:place] + word[place + 1 :]
    if kind == "double":
        return word[:place] + letter + word[place:]
    return word[:place] + rng.choice(neighbours(letter) or letter) + word[place + 1 :]


def hasty(text: str, rng: random.Random, rate: float = RATE) -> str:
    """The text with errors in about `rate` of its plain words, one at least where there is any to hit."""
    kept = [match.span() for pattern in (_SPAN, _KEPT) for match in pattern.finditer(text)]
    free = [
        match.span()
        for match in _PLAIN.finditer(text)
        if not any(low < match.end() and match.start() < high for low, high in kept) and _whole(text, match)
    ]
    if not free:
        return text
    hit = [span for span in free if rng.random() < rate] or [rng.choice(free)]
    for low, high in reversed(hit):
        text = text[:low] + mistype(text[low:high], rng) + text[high:]
    return text


def _whole(text: str, match: re.Match[str]) -> bool:
    """Whether the match is a whole word, not a part of one with capitals inside."""
    before, after = text[match.start() - 1 : match.start()], text[match.end() : match.end() + 1]
    return not (before.isalnum() or after.isalnum())
