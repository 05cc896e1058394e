"""Licences as people name them in a line: "GPLv2+", "BSD 3-Clause", "MIT/Apache-2.0", "Expat", "GNU Library or Lesser General Public License (LGPL)".

What a name leaves open is not filled in: a BSD licence without its clauses is `LicenseRef-BSD`. Two names do fill in by their own terms:
a GPL without a version may be taken under any (its section 9 or 14 says so), and Apache without one is 2.0, since nothing is published under
1.x any more."""

from __future__ import annotations

import re
from functools import lru_cache

from etude.core.licence.expression import PUBLIC_DOMAIN, SOME_BSD, join_expressions, spdx
from etude.core.licence.words import words

# Longer ones are texts, not names.
MOST_CHARS = 240
NOISE = frozenset((
    "the", "a", "an",
    "license", "licenses", "licensed", "version", "v", "under", "open", "source", "approved", "osi", "terms", "of", "released", "is",
    "see", "file", "txt", "md", "rst", "for", "details", "in", "text", "general", "public", "software", "free", "foundation", "style", "terms", "ver",
    "dfsg", "all", "code", "by", "s", "project", "package", "full", "distributed",
))  # fmt: skip
VERSION = r"(?P<version>[123])(?: ?(?P<minor>[01]))?"
LATER = r"(?P<later> (?:plus|only)\b)?"
GNU = {
    "gpl": "GPL",
    "lgpl": "LGPL",
    "agpl": "AGPL",
    "lesser": "LGPL",
    "library": "LGPL",
    "library or lesser": "LGPL",
    "affero": "AGPL",
    "": "GPL",
}
GNU_NAME = re.compile(
    rf"(?:gnu )?(?:(?P<kind>a?l?gpl|lesser|library or lesser|library|affero)"
    rf"|(?<=gnu ))(?: gpl)? ?(?:{VERSION})?{LATER}(?: a?l?gpl(?: ?v?\d(?: ?\d)?)?(?: plus)?)?"
)
COUNTS = {
    "2": "2",
    "3": "3",
    "4": "4",
    "two": "2",
    "three": "3",
    "four": "4",
    "0": "0",
    "zero": "0",
    "1": "1",
    "one": "1",
}
COUNTED_BSD = re.compile(r"(?:(?P<a>\w+) clause )?bsd(?: (?P<b>\w+)(?: clause)?)?(?: \w+)?")
NAMED: tuple[tuple[str, str], ...] = (
    (r"(?:mit|expat)(?: mit| expat| x11)?|x11 mit", "MIT"),
    (r"mit no attribution(?: mit 0)?|mit 0", "MIT-0"),
    (r"apache(?: apache)?(?: 2(?: 0)?| v2)?|asl ?2?(?: 0)?|apache ?2|apache2 0|al2|apachev2", "Apache-2.0"),
    (r"apache 1 1", "Apache-1.1"),
    (r"apache 2 0 with llvm exceptions?", "Apache-2.0 WITH LLVM-exception"),
    (r"new bsd|modified bsd|revised bsd|bsd new|bsd modified|bsd ?3|3 bsd|bsd bsd 3 clause|bsd 3 clause bsd 3 clause", "BSD-3-Clause"),
    (r"simplified bsd|freebsd|bsd simplified|bsd ?2|bsd bsd 2 clause", "BSD-2-Clause"),
    (r"original bsd|bsd ?4", "BSD-4-Clause"),
    (r"bsd(?: like)?", SOME_BSD),
    (r"isc(?: iscl)?|iscl", "ISC"),
    (r"0bsd|zero clause bsd|bsd zero clause(?: 0bsd)?", "0BSD"),
    (r"zlib(?: libpng)?|libpng zlib", "Zlib"),
    (r"boost(?: 1 0)?(?: bsl 1 0)?|bsl 1 0", "BSL-1.0"),
    (r"psf(?: 2(?: 0)?)?|psfl|python(?: psf)?", "PSF-2.0"),
    (r"zpl 2 1|zope 2 1(?: zpl)?|zpl 2 1 zpl", "ZPL-2.1"),
    (r"(?:mozilla|mpl)(?: 2 0| 2)(?: mpl 2 0)?|mpl2(?: 0)?", "MPL-2.0"),
    (r"(?:mozilla|mpl) 1 1(?: mpl 1 1)?", "MPL-1.1"),
    (r"eclipse(?: public)? 1 0(?: epl 1 0)?|epl 1 0", "EPL-1.0"),
    (r"eclipse(?: public)? 2 0(?: epl 2 0)?|epl 2 0", "EPL-2.0"),
    (r"artistic 2(?: 0)?", "Artistic-2.0"),
    (r"artistic(?: 1)?", "Artistic-1.0-Perl"),
    (r"perl(?: 5)?|same as perl(?: 5)?(?: itself)?", "Artistic-1.0-Perl OR GPL-1.0-or-later"),
    (r"unlicense(?: unlicense)?", "Unlicense"),
    (r"wtfpl(?: 2)?", "WTFPL"),
    (r"cc0(?: 1 0)?(?: universal)?(?: cc0 1 0)?(?: domain dedication)?", "CC0-1.0"),
    (r"domain|pd|unencumbered", PUBLIC_DOMAIN),
    (r"afl 2 1|academic 2 1", "AFL-2.1"),
    (r"afl 3 0|academic 3 0", "AFL-3.0"),
    (r"(?:cc by|creative commons attribution) (?:4 0|4)(?: international)?(?: cc by 4 0)?", "CC-BY-4.0"),
    (r"(?:cc by|creative commons attribution) (?:3 0|3)(?: unported)?", "CC-BY-3.0"),
    (r"(?:cc by sa|creative commons attribution share ?alike) (?:4 0|4)(?: international)?(?: cc by sa 4 0)?", "CC-BY-SA-4.0"),
    (r"(?:cc by sa|creative commons attribution share ?alike) (?:3 0|3)(?: unported)?", "CC-BY-SA-3.0"),
    (r"eupl 1 2|european union 1 2(?: eupl 1 2)?", "EUPL-1.2"),
    (r"eupl 1 1|european union 1 1(?: eupl 1 1)?", "EUPL-1.1"),
    (r"hpnd|historical permission notice and disclaimer(?: hpnd)?", "HPND"),
    (r"(?:university of illinois )?ncsa(?: university of illinois)?|university illinois ncsa", "NCSA"),
    (r"postgresql", "PostgreSQL"),
    (r"(?:sil )?(?:ofl|font)(?: 1 1)?(?: ofl 1 1)?", "OFL-1.1"),
    (r"curl", "curl"), (r"ruby", "Ruby"), (r"vim", "Vim"), (r"openssl", "OpenSSL"), (r"blue oak model 1 0 0", "BlueOak-1.0.0"),
    (r"openldap 2 8", "OLDAP-2.8"), (r"fsfap", "FSFAP"), (r"fsful", "FSFUL"), (r"fsfullr", "FSFULLR"), (r"upl 1 0|universal permissive", "UPL-1.0"),
)  # fmt: skip
_NAMED = tuple((re.compile(pattern), licence) for pattern, licence in NAMED)
_LATER = re.compile(
    r"[,;]?\s+or\s+(?:\(?at your option\)?[,\s]+)?(?:any\s+)?(?:later|newer|above|higher|greater)(?:\s+versions?)?|\+|(?<=\d)[ -]or[ -]later",
    re.IGNORECASE,
)
_SPLIT_OR = re.compile(r"\s+or\s+|\s*/\s*(?!x11|libpng|expat)|\s*\|\|?\s*|(?<=\d)or\s", re.IGNORECASE)
_SPLIT_AND = re.compile(r"\s+and\s+|\s*[&,;]\s*(?!version|see|v\d|inc)", re.IGNORECASE)
_CHOICE = re.compile(r"^(?:your choice of|either(?: of)?|dual(?:[- ]licensed)?(?: under)?:?)\s+", re.IGNORECASE)


@lru_cache(maxsize=4096)
def of_name(name: str) -> str:
    """The SPDX expression that a line names, or ""."""
    name = " ".join(name.split()).strip(" .\"'")
    if not name or len(name) > MOST_CHARS:
        return ""
    if found := spdx(name):
        return found
    plain = _LATER.sub(" plus", re.sub(r"\(?>=?\s*v?(\d(?:\.\d)?)\)?", r"\1 plus", name))
    if found := _single(plain):
        return found
    choice = _CHOICE.search(plain)
    body = _CHOICE.sub("", plain)
    for split, is_choice in ((_SPLIT_OR, True), (_SPLIT_AND, bool(choice))):
        parts = [part for part in split.split(body) if part.strip()]
        if len(parts) > 1:
            known = [spdx(part) or _single(part) or of_name(part) for part in parts]
            if all(known):
                return join_expressions(known, choice=is_choice)
    return ""


def _single(name: str) -> str:
    """One licence without "or" and "and"."""
    name = re.sub(r"(?<=[a-z])(?=v\d)|(?<=GPL)(?=\d)", " ", name, flags=re.IGNORECASE)
    found = " ".join(re.sub(r"^v(\d)", r"\1", word) for word in words(name) if word not in NOISE).replace(
        "pluss", "plus"
    )
    found = re.sub(r"\bplus plus\b", "plus", found)
    for pattern, licence in _NAMED:
        if pattern.fullmatch(found):
            return licence
    return _gnu(found) or _bsd(found)


def _gnu(found: str) -> str:
    match = GNU_NAME.fullmatch(found)
    if not match or found == "gnu ":
        return ""
    kind = GNU[match["kind"] or ""]
    lowest = {"GPL": "1.0", "LGPL": "2.0", "AGPL": "1.0"}[kind]
    if not match["version"]:
        return f"{kind}-{lowest}-or-later"
    version = f"{match['version']}.{match['minor'] or 0}"
    if version == "2.1" and kind != "LGPL":
        return ""
    return spdx(
        f"{kind}-{version}-{'or-later' if (match['later'] or '').strip() == 'plus' or found.endswith(' plus') else 'only'}"
    )


def _bsd(found: str) -> str:
    match = COUNTED_BSD.fullmatch(found)
    if not match:
        return ""
    counts = {COUNTS[word] for word in (match["a"], match["b"]) if word in COUNTS}
    if len(counts) != 1:
        return ""
    count = counts.pop()
    return "0BSD" if count == "0" else f"BSD-{count}-Clause"
