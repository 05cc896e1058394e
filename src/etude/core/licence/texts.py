"""The licence files of a folder, and what they say together."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from etude.core.licence.expression import PUBLIC_DOMAIN, SOME_BSD, join_expressions, symbols
from etude.core.licence.matching import analyse_text
from etude.core.licence.notices import OWN_TERMS, choice, granted_licences

NAME = re.compile(r"^(?:[\w.+-]*[-_.])?(?:licen[cs]es?|copying|unlicen[cs]e|copyright)(?:[-_.].*)?$", re.IGNORECASE)
# Code about licences, not licences.
CODE = re.compile(
    r"\.(?:py|pyi|js|ts|tsx|jsx|mjs|cjs|json|c|h|cc|cpp|hpp|go|rs|java|rb|sh|ya?ml|toml|svg|png|gif|css|xml|in|tmpl|j2|cfg|cmake|pl|pm|cs|php|sql|map|po)$",
    re.IGNORECASE,
)
PLURAL = re.compile(r"licen[cs]es\b", re.IGNORECASE)
# Other people's works in this one.
OF_OTHERS = re.compile(
    r"third|3rd|bundl|vendor|depend|external|other|notice|header|template|icons?|fonts?|docs?\b|logo", re.IGNORECASE
)
# LICENSE-MIT next to LICENSE-APACHE: Rust's custom, which means a choice. Other pairs of names mean nothing.
NAMED = re.compile(r"^licen[cs]e[-_.](mit|apache)", re.IGNORECASE)
CUSTOM = {"mit", "apache"}
NO_CONDITIONS = frozenset(("CC0-1.0", "Unlicense"))
MOST_BYTES = 400_000
# Where a licence file speaks for itself, before the first text and after it: the rest is about others' works.
SPEAKS_WORDS = 160
# A choice is offered at the very beginning, or after the text.
OFFERS_WORDS = 60
# A file without any licence we know, but with terms of this length (a pointer to a licence elsewhere is shorter), is a licence of its own.
OTHER_TERMS = re.compile(
    r"hereby grant|permission (?:is|to use)|redistribution|you may (?:not )?(?:use|copy|modify|distribute)|license agreement|agree to be bound"
)
LEAST_TERMS = 60


@dataclass(frozen=True)
class Texts:
    """`expression` is "" if the files say nothing that has an identifier; `foreign` if what they grant is not what any licence we know grants:
    words that restrict, or terms in words of their own."""

    expression: str = ""
    foreign: bool = False


def licence_files(root: Path) -> dict[str, list[str]]:
    """Names of licence files by folder ("" is the root), without following a link."""
    found: dict[str, list[str]] = {}
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name != ".git"]
        inside = os.path.relpath(folder, root).replace(os.sep, "/")
        for name in sorted(names):
            if (
                NAME.match(name)
                and not CODE.search(name)
                and not OF_OTHERS.search(name)
                and not os.path.islink(os.path.join(folder, name))
            ):
                found.setdefault("" if inside == "." else inside, []).append(name)
    for folder, names in found.items():  # "LICENSES" next to "LICENSE" lists those of others
        single = [name for name in names if not PLURAL.match(name)]
        found[folder] = single or names
    return found


def of_files(files: dict[str, str], expected: frozenset[str] = frozenset()) -> Texts:
    """What licence files say together; `files` are their texts by name. Several hold all together, unless one offers a choice or they
    are named in Rust's way. `expected` are those that the metadata names."""
    readings = [_of_text(text, expected) for text in files.values()]
    if any(one.foreign for one in readings):
        return Texts("", foreign=True)
    kept = _without_companions(list(dict.fromkeys(licence for one in readings for licence in one.licences)))
    named = {found[1].lower() for name in files if (found := NAMED.match(name))}
    offered = named == CUSTOM or any(one.choice and one.points for one in readings)
    if offered:
        return Texts(join_expressions(kept, choice=True))
    all_hold: list[str] = []
    for one in readings:
        mine = [licence for licence in one.licences if licence in kept]
        all_hold += [join_expressions(mine, choice=True)] if one.choice else mine
    return Texts(join_expressions(all_hold))


@dataclass(frozen=True)
class _Reading:
    """One file: its licences, whether they are for choice, whether it only `points` to texts elsewhere, and whether its terms are foreign."""

    licences: list[str]
    choice: bool
    points: bool
    foreign: bool


def _of_text(text: str, expected: frozenset[str]) -> _Reading:
    reading = analyse_text(text, expected)
    before, after = reading.before.split(), reading.after.split()[:SPEAKS_WORDS]
    spoken = " ".join([*(before[-SPEAKS_WORDS:] if reading.matches else before[: 2 * SPEAKS_WORDS]), "\n", *after])
    found = reading.licences
    for licence in granted_licences(spoken, bare=not reading.matches):
        if licence not in found:
            found.append(licence)
    own = len(reading.rest.split()) >= LEAST_TERMS and OTHER_TERMS.search(reading.rest) is not None and not found
    foreign = own or reading.restricted or OWN_TERMS.search(spoken) is not None
    offer = spoken if not reading.matches else " ".join([*before[:OFFERS_WORDS], "\n", *after])
    return _Reading(found, choice(offer), not reading.matches, foreign)


def _without_companions(found: list[str]) -> list[str]:
    """LGPL 3 is written on top of GPL 3, whose text is next to it; "or later" says more than the text's own number; a family more than one of it."""
    names = frozenset().union(*map(symbols, found)) if found else frozenset()
    kept = [
        licence
        for licence in found
        if licence.replace("-only", "-or-later") == licence or licence.replace("-only", "-or-later") not in names
    ]
    if any(name.startswith(("LGPL-3.0", "AGPL-3.0")) for name in names):
        kept = [licence for licence in kept if not licence.startswith("GPL-3.0")]
    if not NO_CONDITIONS.isdisjoint(names):  # each has the other's words in its preface
        kept = [licence for licence in kept if licence != PUBLIC_DOMAIN]
    if any(name.startswith("BSD-") for name in names):
        kept = [licence for licence in kept if licence != SOME_BSD]
    return kept
