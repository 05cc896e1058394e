"""The class of a message that followed an agent's work, by rules over its words. Rules, not a model: the first that fits
decides, English only, and what fits none is "other". The share of each class says more than any one message."""

from __future__ import annotations

import re
from typing import Literal

FollowUp = Literal["rejection", "correction", "approval", "question", "continuation", "other"]

RULES: tuple[tuple[FollowUp, re.Pattern[str]], ...] = (
    (
        "rejection",
        re.compile(
            r"\b(?:undo|revert|roll(?:ed)? ?back|put (?:it|that) back|discard|throw (?:it|that) away|stop doing)\b",
            re.I,
        ),
    ),
    (
        "correction",
        re.compile(
            r"^\s*(?:no|nope|wrong|not)\b|\b(?:still (?:fails?|broken|not|wrong|the same)|does(?:n't| not) work|did(?:n't| not) work|"
            r"not what i|that(?:'s| is) (?:wrong|not)|you (?:forgot|missed|broke|should have|didn't)|instead of|should (?:have|be)|"
            r"shouldn't|wrong file|again, (?:but|without))\b",
            re.I,
        ),
    ),
    (
        "approval",
        re.compile(
            r"\b(?:thanks?|thank you|perfect|great|nice|lgtm|looks good|well done|works now|ship it|commit (?:it|this))\b",
            re.I,
        ),
    ),
    ("question", re.compile(r"\?\s*$|^\s*(?:why|what|how|where|when|who|which|can you explain|explain)\b", re.I)),
    (
        "continuation",
        re.compile(r"^\s*(?:continue|go on|go ahead|yes|ok(?:ay)?|next|now|also|and|then|please)\b", re.I),
    ),
)


def follow_up(text: str) -> FollowUp:
    """The class of a message."""
    for name, pattern in RULES:
        if pattern.search(text):
            return name
    return "other"
