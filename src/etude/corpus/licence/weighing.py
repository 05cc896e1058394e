"""Metadata against licence text: where both speak, what holds. The text is what was granted; the metadata tells what a text can't: "or later", a choice
between two texts, which of many texts is the project's."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from etude.corpus.licence.expression import FAMILIES, PUBLIC_DOMAIN, SOME_BSD, family, joined, symbols
from etude.corpus.licence.metadata import Said
from etude.corpus.licence.texts import Texts

# What a name in metadata is used for beside its own licence.
ALSO_MEANT: dict[str, frozenset[str]] = {
    "MIT": frozenset(("X11", "MIT-0", "MIT-CMU")),
    "PSF-2.0": frozenset(("Python-2.0", "0BSD")),
    "Python-2.0": frozenset(("PSF-2.0", "0BSD")),
    PUBLIC_DOMAIN: frozenset(("CC0-1.0", "Unlicense", "0BSD", "WTFPL", "MIT-0")),
}
_GNU = re.compile(r"(A?L?GPL)-(\d\.\d)-(only|or-later)")


@dataclass(frozen=True)
class Verdict:
    """`conflict` is set where the metadata says what the text doesn't bear out."""

    expression: str
    evidence: Literal["metadata", "text", "none"]
    conflict: bool = False


def weigh(said: Said, texts: Texts) -> Verdict:
    """What holds for a project."""
    if texts.restricted:
        return Verdict("", "text", conflict=bool(said.expression))
    if not said.expression:
        return Verdict(texts.expression, "text") if texts.expression else Verdict("", "none")
    if not texts.expression:
        return Verdict(said.expression, "metadata")
    claimed, granted = symbols(said.expression), symbols(texts.expression)
    meant = {claim: {grant for grant in granted if covers(claim, grant)} for claim in claimed}
    borne_out = all(meant.values())
    explained = granted <= frozenset().union(*meant.values())
    if explained or (borne_out and not _worse(texts.expression, said.expression)):
        return _refined(said, meant)
    if borne_out and " OR " in texts.expression:  # the text offers more
        return Verdict(texts.expression, "text")
    return Verdict(texts.expression, "text", conflict=True)


def covers(claim: str, grant: str) -> bool:
    """Whether metadata that says `claim` is borne out by a text of `grant`."""
    claim_base, grant_base = claim.partition(" WITH ")[0], grant.partition(" WITH ")[0]
    if claim_base == grant_base:
        return " WITH " in claim or " WITH " not in grant
    if grant_base in ALSO_MEANT.get(claim_base, ()):
        return True
    if claim_base == SOME_BSD:
        return grant_base.startswith("BSD-")
    one, other = _GNU.fullmatch(claim_base), _GNU.fullmatch(grant_base)
    if not one or not other:
        return False
    if (
        one[1] == "LGPL" and one[2] == "3.0" and other[1] == "GPL"
    ):  # LGPL 3 refers to GPL 3, whose text is often the one enclosed
        return other[2] == "3.0"
    return one[1] == other[1] and (one[2] == other[2] or (one[3] == "or-later" and one[2] <= other[2]))


def _refined(said: Said, meant: dict[str, set[str]]) -> Verdict:
    """The metadata's expression, each name that left something open replaced by the text's."""
    expression, evidence = said.expression, "metadata"
    for claim, grants in meant.items():
        inexact = (
            claim in (SOME_BSD, PUBLIC_DOMAIN)
            or (not said.exact and _GNU.fullmatch(claim))
            or claim in ("MIT", "PSF-2.0")
        )
        precise = {grant for grant in grants if grant != claim}
        if inexact and precise and claim not in grants and not (claim == "PSF-2.0"):
            # In brackets where it stands beside others.
            new = joined(precise)
            whole = expression == claim
            expression = re.sub(
                rf"(?<![\w.-]){re.escape(claim)}(?![\w.-])",
                new if whole or len(precise) == 1 else f"({new})",
                expression,
            )
            evidence = "text"
    return Verdict(expression, evidence)


def _worse(one: str, other: str) -> bool:
    return FAMILIES.index(family(one)) > FAMILIES.index(family(other))
