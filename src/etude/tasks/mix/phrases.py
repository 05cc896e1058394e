"""Finds what a request is about by its words. The phrase that starts first decides; at the same place the earlier row
of `PHRASES` wins.

"Rename foo and fix the docs" is a refactor, "fix the docs" is documentation, "fix the build on CI" is devops. The
phrases are English. A request in another language is decided by the files that were written, or not at all.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

# An imperative, and up to five words before its object.
_MAKE = (
    r"(?:add|write|create|generate|extend|improve|increase|update|cover|fix|correct|complete|need|want|missing|more|new"
    r"|set ?up|make|build|repair|publish)"
)
_ON = r"(?:\W++\w[\w./'-]*+){0,5}?\W+"  # possessive, because a row of apostrophes would backtrack for very long
_OPS = (
    r"(?:ci|ci/cd|pipelines?|docker\w*|compose|deploy\w*|kubernetes|k8s|helm|terraform|ansible|github actions?|gitlab|jenkins|workflows?|nginx"
    r"|systemd|container image|makefile|staging|infrastructure)"
)
_DOCS = r"(?:docs?|docstrings?|readme|documentation|comments?|changelog|tutorial|guide|man ?page|api reference)"
_TESTS = r"(?:(?:unit |integration |regression |end-to-end |e2e )?(?:tests?|test cases?|specs?)|coverage)"
_VERSION = r"(?:v?\d[\w.]*|latest|newer|new version|typescript|esm|es modules|async\w*|python ?3\S*|pydantic|pytest|postgres\w*|vite|vue|react)"

# In order of precedence for phrases that start at the same place.
PHRASES: tuple[tuple[str, str, str], ...] = (
    (
        "review",
        "asks for a review",
        r"(?:code )?review|audit|look over|(?:give|any) feedback|critique|what do you think of (?:this|my|"
        r"the)",
    ),
    (
        "migrations",
        "asks for a migration",
        rf"migrat\w+|port\b{_ON}to|upgrade|bump\b{_ON}to|(?:move|switch|convert|change){_ON}(?:from{_ON}to|"
        rf"to{_ON}?{_VERSION})|drop(?: \w+)? ?[\d.]* support|get (?:us|this|it) to v?\d",
    ),
    ("devops", "asks about the pipeline", rf"{_MAKE}{_ON}{_OPS}|{_OPS}"),
    (
        "debugging",
        "a test fails",
        r"(?:fix|repair)\W+(?:the |this |a |our |these )?(?:failing|flaky|broken) (?:unit |"
        r"integration )?tests?|tests? (?:is |are |keeps? )?(?:fail\w*|broken|flaky|red)",
    ),
    ("tests", "asks for tests", rf"{_MAKE}{_ON}?{_TESTS}|test coverage|test the|parametri[sz]e|no tests"),
    (
        "documentation",
        "asks for documentation",
        rf"{_MAKE}{_ON}?{_DOCS}|document(?: the| how| this| all| every| our)?|{_DOCS}",
    ),
    (
        "debugging",
        "tells of a fault",
        r"bugs?|\w+(?:Error|Exception)|times? out|off by one|fix(?:e[sd]|ing)?|fail(?:s|ed|ing|ure)?|"
        r"errors?|crash(?:e[sd]|ing)?|broken|wrong(?:ly)?|traceback|exception|debug|doesn'?t work|"
        r"not working|hangs?|leaks?|why (?:does|is|do|are)|regression|segfault|stack ?trace",
    ),
    (
        "refactors",
        "asks for a refactor",
        r"refactor\w*|renam\w+|extract|simplif\w+|clean(?: ?up)?|restructur\w+|reorgani[sz]\w+|dedup\w*|"
        r"de-duplicate|split|move|inline|get rid of|replace|dead code|tidy",
    ),
    (
        "features",
        "asks for something new",
        r"add|implement|support|create|build|make|allow|introduce|new|let users|i want|we need|write|"
        r"extend|enable|provide",
    ),
)
_COMPILED = tuple(
    (category, rule, re.compile(rf"(?i)(?<![\w-])(?:{words})(?![\w-])")) for category, rule, words in PHRASES
)


@dataclass(frozen=True)
class CategoryMatch:
    """The category of a request, the rule that decided, and the words that it matched."""

    category: str
    rule: str
    phrase: str


def match_phrase(request: str) -> CategoryMatch | None:
    """The first phrase in the request; None where it has none."""
    matches = [
        (match.start(), place, CategoryMatch(category, rule, match[0]))
        for place, (category, rule, words) in enumerate(_COMPILED)
        if (match := words.search(request))
    ]
    return min(matches, key=lambda item: item[:2])[2] if matches else None
