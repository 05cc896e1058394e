"""Licences that a text grants by reference: "either version 2 of the License, or (at your option) any later version", "dual licensed under MIT and
Apache 2.0". Read on normalised words (words.py), so that line breaks, comment marks and quotation marks do not matter.

A GNU licence counts where a version is next to it, in the sentence that grants; the two sentences that follow in every GNU notice ("see the GNU
General Public License for more details", "you should have received a copy") have none."""

from __future__ import annotations

import re

from etude.core.licence.expression import PUBLIC_DOMAIN, SOME_BSD

_GNU = re.compile(
    r"\b(?:gnu (?:(?P<kind>lesser|library or lesser|lesser or library|library|affero) )?(?:general )?public license"
    r"|(?:gnu )?(?P<short>a?l?gpl)(?: ?v?(?P<glued>[123])(?: (?P<minor>[01]))?)?)\b"
)
# What may stand between the licence's name and its version.
_VERSION_AFTER = re.compile(
    r"^(?: (?:l?gpl|as|published|by|the|free|software|foundation|inc|either|fsf|license|terms|of|in|with|any|under|conditions|and|agpl)\b){0,12}"
    r"(?: (?:version|versions|v|vers|ver))? ?v?(?P<major>[123])(?: (?P<minor>[01])\b)?(?P<tail>(?: \w+){0,16})"
)
_VERSION_BEFORE = re.compile(
    r"version (?P<major>[123])(?: (?P<minor>[01]))?(?P<later> or(?: at your option)?(?: any)? later(?: version)?)?"
    r"(?: of)?(?: the)?(?: terms of)?(?: the)? $"
)
_LATER = re.compile(
    r"^(?: \d)?(?: (?:of|the|license|licence|gpl|gnu|general|public|lesser|as|published|by|free|software|foundation|inc|fsf|l?gplv?\d?))*"
    r" (?:or|and)(?: (?:at|your|option|our|opinion|choice|if|you|prefer))*(?: (?:any|a))? ?(?:later|newer|higher|above|greater)\b|^ plus\b"
)
_GRANT = (
    r"\b(?:under|by|subject to|adopts|according to|accordance with)(?: (?:the|either|both|terms|conditions|of|a|an"
    r"|and|provisions|same|simplified|permissive|"
    r"standard|open|source|following|dual|version|is|free|software|restrictions|osi|approved|either of|these|liberal|very))* "
)
_NAMES: tuple[tuple[str, str], ...] = (
    (r"apache(?: software)?(?: public)? license,?(?: version| v)? ?2(?: 0)?(?P<llvm> with llvm exceptions?)?"
     r"|apache(?: license)?(?: version)? 2(?: 0)?|apache2?", "Apache-2.0"),
    (r"mit no attribution|mit 0", "MIT-0"),
    (r"mit(?: x11| expat)?(?: style)? license|expat license|mit x11|mit(?= or| and|$| \n)|mit licensed|mit licence", "MIT"),
    (r"(?:modified|new|revised|3 clause|three clause|bsd 3|bsd 3 clause)(?: bsd)?(?: style)?(?: license)?(?=\b)"
     r"|bsd (?:3|three) clause|bsd 3 clause", "BSD-3-Clause"),
    (r"(?:simplified|2 clause|two clause|freebsd)(?: bsd)? license|2 clause bsd|bsd 2 clause|simplified bsd", "BSD-2-Clause"),
    (r"bsd(?: style| like)? license", SOME_BSD),
    (r"isc license", "ISC"),
    (r"zlib(?: libpng)? license", "Zlib"),
    (r"boost software license(?: version)?(?: 1 0)?", "BSL-1.0"),
    (r"zope public license(?: version)? 2 1|zope public license zpl version 2 1|zpl 2 1", "ZPL-2.1"),
    (r"python software foundation license|psf license|psf 2 0", "PSF-2.0"),
    (r"mozilla public license(?: mpl)?(?: version| v)?(?: 2 0)?|mpl(?: v| version)? ?2(?: 0)?|mplv2(?: 0)?", "MPL-2.0"),
    (r"mpl(?: version)? 1 1|mozilla public license(?: version)? 1 1", "MPL-1.1"),
    (r"eclipse public license(?: version| v| -)? ?2(?: 0)?", "EPL-2.0"),
    (r"eclipse public license(?: version| v)? ?1(?: 0)?", "EPL-1.0"),
    (r"artistic license(?: version)? 2(?: 0)?", "Artistic-2.0"),
    (r"academic free license(?: version| v)? 2 1", "AFL-2.1"),
    (r"academic free license(?: version| v)? 3 0", "AFL-3.0"),
    (r"creative commons attribution share ?alike (?P<ccbysa>[34]) 0\w*(?: \w+)? license", "CC-BY-SA-{}.0"),
    (r"creative commons attribution (?P<ccby>[34]) 0\w*(?: \w+)? license", "CC-BY-{}.0"),
    (r"university of illinois(?: ncsa)? open source license", "NCSA"),
    (r"unlicense", "Unlicense"), (r"wtfpl", "WTFPL"), (r"0bsd", "0BSD"), (r"postgresql license", "PostgreSQL"),
    (r"blue oak model license", "BlueOak-1.0.0"),
)  # fmt: skip
_GRANTED = tuple((re.compile(_GRANT + f"(?:{pattern})"), licence) for pattern, licence in _NAMES)
_ALSO = tuple(
    (
        re.compile(
            rf"^(?: version)?(?: \d)*(?: license)? (?:and(?: or)?|or)(?: (?:the|under|terms|of|at|your|option|a))* (?:{pattern})"
        ),
        licence,
    )
    for pattern, licence in _NAMES
)
# Whole statements with one meaning.
_STATEMENTS = tuple((re.compile(pattern), licence) for pattern, licence in (
    (r"mpl 1 1 gpl 2 0 lgpl 2 1", "MPL-1.1 OR GPL-2.0-or-later OR LGPL-2.1-or-later"),
    (r"same terms as (?:the )?perl", "Artistic-1.0-Perl OR GPL-1.0-or-later"),
    (r"free and unencumbered software released into the public domain", "Unlicense"),
    (r"cc0 1 0 universal|creative commons zero|publicdomain zero 1 0|\bcc0(?: 1 0)?\b", "CC0-1.0"),
    (r"beer ?ware license", "Beerware"),
    (r"under any osi approved open source license", "any-OSI"),
    (r"copying and distribution of this (?:file|package|script|document"
     r"|work) with or without modification are permitted in any medium without royalty", "FSFAP"),
    (r"this file is free software the free software foundation gives unlimited permission to copy "
     r"and or distribute it with or without modifications as long as",
     "FSFULLR"),
    (r"(?:placed|released|put|dedicated?|donated)(?: \w+){0,12} (?:in|into|to) the public domain|(?:is|are"
     r"|was) (?:hereby )?(?:in )?(?:the )?public domain|^public domain"
     r"|author disclaims copyright to this source", PUBLIC_DOMAIN),
))  # fmt: skip
_EXCEPTIONS = tuple((re.compile(pattern), name) for pattern, name in (
    (r"gcc runtime library exception", "GCC-exception-3.1"),
    (r"configuration script generated by autoconf", "Autoconf-exception-generic"),
    (r"(?:bison parser|parser skeleton)", "Bison-exception-2.2"),
    (r"built using gnu libtool|using libtool to build", "Libtool-exception"),
    (r"classpath exception|linking this library statically or dynamically|link this library with independent modules", "Classpath-exception-2.0"),
    (r"linux syscall note|user programs that use kernel services", "Linux-syscall-note"),
    (r"universal foss exception", "Universal-FOSS-exception-1.0"),
))  # fmt: skip
_CHOICE = re.compile(
    r"\beither\b(?! version| express)|\bdual(?:ly)? licensed\b(?! both| with)|\balternatively\b|\byour choice\b"
    r"|\byou may choose\b|\b(?:any|one) of the (?:following )?licenses|\bchoice of"
    r"|\bor (?:the )?(?:mit|apache|bsd|gnu|lgpl|gpl|mpl|eclipse|mozilla|academic)\b|\bat your option\b(?! any"
    r"| to the files)|multi licensed|tri licensed|disjunctive"
)
# Longer than any name of a licence with its version.
MOST_BETWEEN = 120
# Somebody's own terms: the file is not under the project's licence.
OWN_TERMS = re.compile(
    r"proprietary and confidential|confidential and proprietary"
    r"|without (?:the )?express(?:ed)? (?:written )?(?:license|permission|consent)|strictly prohibited|not for distribution"
    r"|non ?commercial (?:use|purposes|research)|research purposes only|commons clause|unpublished (?:source|work)"
    r"|all use is subject to|may not be (?:copied|redistributed|distributed)"
)


def choice(text: str) -> bool:
    """Whether normalised words offer licences for choice."""
    return _CHOICE.search(text) is not None


def granted_licences(text: str, *, bare: bool = True) -> list[str]:
    """The licences that normalised words grant by reference, each once. A combination that one statement makes is one entry.
    `bare` says whether a GNU licence without a version counts as well."""
    for pattern, licence in _STATEMENTS[:2]:
        if pattern.search(text):
            return [licence]
    found = dict.fromkeys(licence for pattern, licence in _STATEMENTS if pattern.search(text))
    if len(found) > 1:
        found.pop(PUBLIC_DOMAIN, None)  # the preface of CC0 and of the Unlicense
    for pattern, licence in _GRANTED:
        for match in pattern.finditer(text):
            found[_named(licence, match)] = None
            found |= dict.fromkeys(_further(text, match.end()))
    found |= dict.fromkeys(_gnu(text, bare=bare and not found))
    for match in _GNU.finditer(text):
        found |= dict.fromkeys(_further(text, match.end()))
    if SOME_BSD in found and any(licence.startswith("BSD-") for licence in found):
        del found[SOME_BSD]
    return list(found)


def _further(text: str, place: int) -> list[str]:
    """Licences that "and" or "or" joins to one that ends at `place`."""
    rest = text[place : place + MOST_BETWEEN]
    return [_named(licence, also) for pattern, licence in _ALSO if (also := pattern.match(rest))]


def _named(licence: str, match: re.Match[str]) -> str:
    groups = {name: value for name, value in match.groupdict().items() if value}
    if "llvm" in groups:
        return f"{licence} WITH LLVM-exception"
    return licence.format(*groups.values()) if "{}" in licence else licence


def _gnu(text: str, *, bare: bool) -> list[str]:
    """GNU licences with their versions, and the exception that follows them; without a version only if `bare`."""
    exception = next((name for pattern, name in _EXCEPTIONS if "exception" in text and pattern.search(text)), "")
    found: dict[str, None] = {}
    matches = list(_GNU.finditer(text))
    for place, match in enumerate(matches):
        end = matches[place + 1].start() if place + 1 < len(matches) else len(text)
        kind = _kind(match)
        after = _VERSION_AFTER.match(text[match.end() : end])
        if match["glued"]:
            major, minor, later = (
                match["glued"],
                match["minor"],
                _LATER.match(text, match.end()) or _LATER.match(text[match.end() :]),
            )
        elif after:
            major, minor, later = after["major"], after["minor"], _LATER.match(after["tail"])
        elif before := _VERSION_BEFORE.search(text[: match.start()]):
            major, minor, later = before["major"], before["minor"], before["later"] or _LATER.match(text[match.end() :])
        else:
            continue
        version = f"{major}.{minor or 0}"
        if (version == "2.1") != (kind == "LGPL" and minor == "1"):
            continue
        licence = f"{kind}-{version}-{'or-later' if later else 'only'}"
        found[f"{licence} WITH {exception}" if exception else licence] = None
    for licence in list(found):  # "section 7 of GPL version 3" next to the grant of "version 3 or later"
        if licence.replace("-only", "-or-later") != licence and licence.replace("-only", "-or-later") in found:
            del found[licence]
    if not found and bare and (named := re.search(_GRANT + _GNU.pattern, text)):
        found[{"GPL": "GPL-1.0-or-later", "LGPL": "LGPL-2.0-or-later", "AGPL": "AGPL-1.0-or-later"}[_kind(named)]] = (
            None
        )
    return list(found)


def _kind(match: re.Match[str]) -> str:
    short = (match["short"] or "").upper()
    return short or {"affero": "AGPL", None: "GPL"}.get(match["kind"], "LGPL")
