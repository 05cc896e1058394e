"""Bugs by token mutation: all the one-line changes of a function that a careless programmer might make.

Works on source lines with name slots (`$xs`), so a mutant is found once and serves under every choice of names. The operator
families follow SWE-smith's idea; comparisons, members, booleans and letters are added because they carry these functions.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Iterator, Sequence

TOKEN = re.compile(r"\$[a-z]+|[A-Za-z_]+|\d|\"[^\"]*\"|[<>=!]=|[-+*%/]=|\s+|.")

COMPARE = ("<", ">", "<=", ">=", "==", "!=")
ARITHMETIC = {"+": "-*", "-": "+", "*": "+", "%": "+", "+=": "-=", "-=": "+=", "*=": "+="}
WORDS = {"append": "extend", "True": "False", "False": "True"}


@dataclass(frozen=True)
class Mutation:
    """Line number `line` (0 is the `def`) replaced by `text`; `kind` names the operator family."""

    line: int
    text: str
    kind: str


def mutations(lines: Sequence[str]) -> tuple[Mutation, ...]:
    """Every mutation of the body lines, in a fixed order; behaviour is not judged here."""
    names = _readable_names(lines)
    found: dict[tuple[int, str], Mutation] = {}
    for number, line in enumerate(lines[1:], start=1):
        for kind, text in _line_mutations(line, names):
            if text != line:
                found.setdefault((number, text), Mutation(number, text, kind))
    return tuple(found.values())


def _readable_names(lines: Sequence[str]) -> list[str]:
    """Every variable slot of the function: what a swapped name may become."""
    names = dict.fromkeys(token for line in lines for token in TOKEN.findall(line) if token.startswith("$"))
    return [name for name in names if name != "$f"]


def _line_mutations(line: str, names: Sequence[str]) -> Iterator[tuple[str, str]]:
    tokens = TOKEN.findall(line)
    for at, token in enumerate(tokens):
        for kind, changed in _token_mutations(tokens, at, names):
            yield kind, "".join([*tokens[:at], changed, *tokens[at + 1 :]])
        if token == "not":  # `not in` and `if not` alike lose the word with the space behind it
            yield "negation", "".join([*tokens[:at], *tokens[at + 2 :]])
    stripped = line.lstrip()
    if stripped.startswith("return ") and stripped not in ("return True", "return False"):
        yield "return", line.replace(stripped, stripped.removeprefix("return "))


def _token_mutations(tokens: Sequence[str], at: int, names: Sequence[str]) -> Iterator[tuple[str, str]]:
    token = tokens[at]
    if token in COMPARE:
        yield from (("comparison", other) for other in COMPARE if other != token)
    elif token in ARITHMETIC:
        swaps = ARITHMETIC[token]
        yield from (("operator", other) for other in ([swaps] if len(token) == 2 else swaps))
    elif token.isdigit():
        yield from (("constant", digit) for digit in "0123456789" if digit != token)
    elif token in WORDS:
        yield ("method" if token == "append" else "boolean"), WORDS[token]
    elif token in ("and", "or"):
        yield "boolean", "or" if token == "and" else "and"
    elif token == "in" and tokens[0].strip() == "" and "for" not in tokens and tokens[at - 2] != "not":
        yield "member", "not in"
    elif token.startswith('"') and len(token) == 3:
        yield from (("letter", f'"{letter}"') for letter in "abcde")
    elif token.startswith("$") and _is_read(tokens, at):
        yield from (("name", name) for name in names if name != token)


def _is_read(tokens: Sequence[str], at: int) -> bool:
    """Whether the slot at `at` is a value read here: not a target, not iterated over, not the receiver of a method.

    Swapping receivers or iterated lists makes loops that feed themselves (`for x in xs: xs.append(x)`).
    """
    following = "".join(tokens[at + 1 :]).lstrip()
    if following.startswith((".", "[")) or "for" in tokens:
        return False
    return not any(following.startswith(sign) for sign in ("= ", "+= ", "-= ", "*= "))
