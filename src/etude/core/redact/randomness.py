"""Whether a value was drawn by a machine (a key) or written by a person (a word, a name, a placeholder).

Entropy alone, the textbook's answer, can't tell `getUserPasswordField` from a key of 20 letters: both have about 3.7 bits a character.
Two more facts do: English and identifiers are made of few pairs of letters, and they change between lower case, upper case and
digits seldom.
"""

from __future__ import annotations

import math
import re
from collections import Counter

# The pairs of letters that make up over 60% of English text (by published letter statistics); of random letters they make up 15%.
COMMON_PAIRS = frozenset(
    "th he in er an re nd at on nt ha es st en ed to it ou ea hi is or ti as te et ng of al de se le sa si ar ve ra ld ur "
    "ro me ne ta el ri li io ic ll na ce ch us ns om la di pe ma ho il ct so ec em ai ad ot ke ge ss wo ag sw pa id us lo "
    "rd ey ss co pr un ac ut ns ee tr fi po mo no ni ow ex am im iv ke ck".split()
)
# Written where a secret would stand, in documentation, tests and templates.
STAND_IN = re.compile(
    r"example|sample|dummy|change|placeholder|your|my[_-]|insert|redact|replace|fixture|default|invalid|"
    r"pass(?:w|phrase|code)|secret|token|admin|hunter2|(?<![a-z])(?:foo|ba[rz]|test|fake|mock|todo|none|null)(?![a-z])|undefined|"
    r"x{4}|\*{3}|\.{3}|_{3}|-{3}|12345|abcde|qwert|asdf|deadbeef|lorem|a1b2c3|00000",
    re.IGNORECASE,
)
# In a key of a known form only what chance does not write: a long run of one character, counting, the word itself.
STAND_IN_TOKEN = re.compile(r"example|(.)\1{5}|12345678|01234567|abcdefgh|your[_-]|placeholder", re.IGNORECASE)
TEMPLATE = re.compile(r"^[$%{<\[(]|\$\{|\{\{|%[(s]|[<>]|\(\)|://|^(?:\.{0,2}/|[A-Za-z]:[\\/])")
UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.IGNORECASE)
HEX = re.compile(r"(?:0x)?(?:[0-9a-f]+|[0-9A-F]+)")
# Case or digit changes within a value: aB, a1, 1a. A capital that begins a word (Ab) is none.
CHANGE = re.compile(r"(?<=[a-z])[A-Z]|(?<=[A-Za-z])[0-9]|(?<=[0-9])[A-Za-z]")
CAPITAL = re.compile(r"(?<=[a-z])[A-Z]")
PAIR = re.compile(r"(?=([A-Za-z]{2}))")

# Values of random letters lie above these, words and counters below (measured on 10^5 drawn values of each length).
LEAST_BITS_SHORT, LEAST_BITS_LONG, LONG = 2.7, 3.2, 20
# Shares of common pairs and of changes: written if (many pairs, few changes) or (some pairs, hardly a change).
# Random letters and digits have 15% and 45%.
WORD_SHARES = ((0.45, 0.3), (0.25, 0.2))
# A value without a digit must have more capitals after small letters than words in a row have; random letters have 25%.
LETTERS_CHANGE_SHARE = 0.15
LEAST_PAIRS = 5  # fewer say nothing: "p4Th!9" has one


def bits_per_character(value: str) -> float:
    """Shannon entropy of the characters of a value; 0.0 for an empty one."""
    return -sum(n / len(value) * math.log2(n / len(value)) for n in Counter(value).values())


def is_hex(value: str) -> bool:
    """Hexadecimal digits only (one case), as hashes are written."""
    return HEX.fullmatch(value) is not None


def change_share(value: str) -> float:
    """Changes of case or digit for each character."""
    return len(CHANGE.findall(value)) / len(value)


def looks_written(value: str) -> bool:
    """Made of words: most pairs of letters are those of English and the case or the digits hardly ever change."""
    pairs = PAIR.findall(value)
    if len(pairs) < LEAST_PAIRS:
        return False
    common = sum(pair.lower() in COMMON_PAIRS for pair in pairs) / len(pairs)
    changes = change_share(value)
    return any(common >= least and changes <= most for least, most in WORD_SHARES)


def token_is_drawn(value: str) -> bool:
    """For a key of a known form: no stand-in for one, and not one character over and over."""
    return STAND_IN_TOKEN.search(value) is None and bits_per_character(value) >= LEAST_BITS_SHORT


def secret_is_drawn(value: str) -> bool:
    """For a value that only its name calls a secret: the strict test, so that ordinary code keeps its strings."""
    if STAND_IN.search(value) or TEMPLATE.search(value) or UUID.fullmatch(value):
        return False
    if not any(c.isalpha() for c in value):
        return False
    if not any(c.isdigit() for c in value) and len(CAPITAL.findall(value)) <= LETTERS_CHANGE_SHARE * len(value):
        return False
    if is_hex(value):
        return len(value) >= LONG and bits_per_character(value) >= LEAST_BITS_SHORT
    kinds = (str.islower, str.isupper, str.isdigit, lambda c: not c.isalnum())
    if (
        len(value) < 16 and sum(any(map(kind, value)) for kind in kinds) < 3
    ):  # "symbol2label", "area51": not enough to tell
        return False
    if bits_per_character(value) < (LEAST_BITS_LONG if len(value) >= LONG else LEAST_BITS_SHORT):
        return False
    return not looks_written(value)
