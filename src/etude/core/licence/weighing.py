"""Metadata against licence text: which of two statements holds. The licence text is the grant; the metadata tells what a text can't: "or later",
a choice between two texts, which of many texts is the project's."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from etude.core.licence.expression import PUBLIC_DOMAIN, SOME_BSD, family, join_expressions, symbols
from etude.core.licence.licence import FAMILIES
from etude.core.licence.metadata import GNU, MetadataLicence, covers
from etude.core.licence.texts import Texts

# Names that stand for more than one licence in everyday use.
LEAVES_OPEN = frozenset((SOME_BSD, PUBLIC_DOMAIN, "MIT", "Python-2.0"))


@dataclass(frozen=True)
class LicenceVerdict:
    """`conflict` is set where the metadata says what the text doesn't bear out."""

    expression: str
    evidence: Literal["metadata", "text", "none"]
    conflict: bool = False


def weigh(claimed_licence: MetadataLicence, texts: Texts) -> LicenceVerdict:
    """What holds for a project."""
    own_name = any(
        claim.startswith("LicenseRef-") and claim not in (SOME_BSD, PUBLIC_DOMAIN)
        for claim in symbols(claimed_licence.expression)
    )
    if own_name:  # a licence of their own, by a name of their own: no text of ours is it
        return LicenceVerdict(claimed_licence.expression, "metadata")
    if texts.foreign:
        return LicenceVerdict("", "text", conflict=bool(claimed_licence.expression))
    if not claimed_licence.expression:
        return LicenceVerdict(texts.expression, "text") if texts.expression else LicenceVerdict("", "none")
    if not texts.expression:
        return LicenceVerdict(claimed_licence.expression, "metadata")
    claimed, granted = symbols(claimed_licence.expression), symbols(texts.expression)
    meant = {claim: {grant for grant in granted if covers(claim, grant)} for claim in claimed}
    borne_out = all(meant.values())
    explained = granted <= frozenset().union(*meant.values())
    if explained:
        return _refined(claimed_licence, texts, meant)
    if borne_out and " OR " in texts.expression:  # the text offers more
        return LicenceVerdict(texts.expression, "text")
    if borne_out and not _worse(
        texts.expression, claimed_licence.expression
    ):  # the text goes on about works of others inside
        return _refined(claimed_licence, texts, meant)
    return LicenceVerdict(texts.expression, "text", conflict=True)


def _refined(claimed_licence: MetadataLicence, texts: Texts, meant: dict[str, set[str]]) -> LicenceVerdict:
    """The metadata's expression, each name that left something open replaced by the text's."""
    expression = claimed_licence.expression
    for claim, grants in meant.items():
        leaves_open = claim in LEAVES_OPEN or (not claimed_licence.exact and GNU.fullmatch(claim))
        if not leaves_open or not grants or claim in grants:
            continue
        if expression == claim:
            whole = grants == symbols(texts.expression)
            return LicenceVerdict(texts.expression if whole else join_expressions(grants), "text")
        new = join_expressions(grants)
        expression = re.sub(
            rf"(?<![\w.-]){re.escape(claim)}(?![\w.-])", new if len(grants) == 1 else f"({new})", expression
        )
    return LicenceVerdict(expression, "metadata" if expression == claimed_licence.expression else "text")


def _worse(one: str, other: str) -> bool:
    return FAMILIES.index(family(one)) > FAMILIES.index(family(other))
