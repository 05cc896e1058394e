"""What the head of a file says about its own licence: an SPDX tag, a licence text, or a notice that grants one by name."""

from __future__ import annotations

import re

from etude.core.licence.expression import SOME_BSD, join_expressions, spdx
from etude.core.licence.matching import LicenceAnalysis, analyse_text
from etude.core.licence.notices import OWN_TERMS, choice, granted_licences
from etude.core.licence.words import words

# The longest head with a licence in it (Apache after a list of authors, BSD after a docstring) ends before this.
HEAD_CHARS = 6_000
# A tag follows comment marks only; in the middle of a line the text is about tags.
TAG = re.compile(
    r"^[^\w\n\"']{0,12}(?:[Rr][Ee][Mm][ \t]+|dnl[ \t]+)?SPDX-License-Identifier:[ \t]*([^\n]+)$", re.MULTILINE
)
AFTER_TAG = re.compile(r"\s*(?:\*+/|-->|\*\)|#\}|-\}|\"\"\"|'''|%>|\?>).*$")
# Nothing else can be a grant: everything below costs time.
WORTH_READING = re.compile(
    r"licen[cs]e|permission is|permission to use|redistribution and use|public domain|proprietary|beer-ware|unpublished|copying and distribution",
    re.IGNORECASE,
)
# How the licences begin that stand in heads as a whole; only then are texts compared.
FULL_TEXT = re.compile(
    r"permission\s+is\s|permission\s+to\s+use|redistribution\s+and\s+use|redistribution\s+of"
    r"|provided\s+['\"`]*as[ -]is|hereby\s+grant|everyone\s+is\s+permitted|unencumbered",
    re.IGNORECASE,
)
_COMMENTS = re.compile(
    r"(?:\s+|#(?!(?:include|if|ifdef|ifndef|define|pragma|import)\b)[^\n]*|//[^\n]*|/\*.*?(?:\*/|\Z)|<!--.*?(?:-->|\Z)|--[^\n]*|;[^\n]*|%[^\n]*|dnl\b[^\n]*|\.\\\"[^\n]*"
    r"|<[?!][^>]*>|[rRuU]?\"\"\".*?(?:\"\"\"|\Z)|'''.*?(?:'''|\Z)|\(\*.*?(?:\*\)|\Z)|\{-.*?(?:-\}|\Z)"
    r"|['\"]use strict['\"];?|@echo[^\n]*|rem\b[^\n]*|\.\.[ \t][^\n]*"
    r"|__license__\s*=[^\n]*|__copyright__\s*=[^\n]*)+",
    re.DOTALL,
)  # fmt: skip


def comments(head: str) -> str:
    """The comments before the first line of code, and a docstring."""
    found = _COMMENTS.match(head[:HEAD_CHARS])
    return found[0] if found else ""


def of_comments(text: str) -> str | None:
    """The expression that these comments grant; "" if they state terms that no identifier names; None if they grant nothing."""
    tags = [AFTER_TAG.sub("", tag).strip() for tag in TAG.findall(text)]
    if tags:
        return join_expressions(spdx(tag) for tag in tags) if all(spdx(tag) for tag in tags) else ""
    if not WORTH_READING.search(text):
        return None
    reading = analyse_text(text) if FULL_TEXT.search(text) else LicenceAnalysis((), " ".join(words(text)), "")
    if reading.restricted:
        return ""
    rest = reading.rest
    if OWN_TERMS.search(rest):
        return ""
    found = dict.fromkeys([*reading.licences, *granted_licences(rest)])
    if SOME_BSD in found:  # "a BSD-style license that can be found in the LICENSE file": that file says which
        return None
    return join_expressions(found, choice=choice(rest)) or None
