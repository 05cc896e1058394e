"""Names of people where code puts them: copyright lines, author fields, the name before an e-mail address, home folders.

No model of names, so a name in running text stays; what goes is recognised by its place. In a copyright line the holder goes whatever it is (a
company as well as a person), in the other places only what has the shape of a name: two to five words with capitals.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from etude.core.redact.finding import Finding

_YEARS = r"(?:(?:19|20)[0-9]{2}(?:[ ]?[-,–][ ]?(?:(?:19|20)?[0-9]{2}|present|now))*)"
_SIGN = r"(?:\([cC]\)|©|&copy;)"
_HOLDER = r"(?P<holder>[^\W\d_][^\n<>\"'`;|(){}\[\]\\*@#/]{1,99}(?!\w))"
_DATED = rf"(?:{_SIGN}[ \t]*[,:]?[ \t]*{_YEARS}?|{_YEARS}(?:[ \t]*{_SIGN})?)"
_COPYRIGHT = rf"(?i:[ \t]*(?:[:=][ \t]*[uU]?[\"'])?[:,]?[ \t]*{_DATED}[,;:]?[ \t]*(?:(?:by|of)[ \t]+)?{_HOLDER})"
_SIGNED = rf"[ \t]*[,:]?[ \t]*{_YEARS}[,;:]?[ \t]*(?:by[ \t]+)?{_HOLDER}"
# Each begins with a literal, so that the scan for it is a memory scan.
HOLDERS = tuple(
    re.compile(start + rest)
    for start, rest in [
        ("opyright", _COPYRIGHT),
        ("OPYRIGHT", _COPYRIGHT),
        (r"\(c\)", _SIGNED),
        (r"\(C\)", _SIGNED),
        ("©", _SIGNED),
    ]
)
# Where the holder ends and the rest of the line begins.
HOLDER_END = re.compile(
    r"\s+-\s|[.,]?\s+(?:all\s+rights|and\s+licen[cs]ed|licen[cs]ed|under\s|released|distributed|see\s|this\s|portions|permission|https?:|www\.|everyone)"
    r"|\.\s|\s+(?=[\w.+-]+@)|[\s.,:-]+$",
    re.IGNORECASE,
)
_FIELD = r"(?:_name)?(?:__)?[\"']?(?:[ \t]*(?::=|=>|[:=])[ \t]*|[ \t]+(?=[^\W\d_a-z]))(?P<zone>\[[^\]]{0,800}|[{(][^})]{0,800}|[^\n]{0,160})"
AUTHORS = tuple(
    re.compile(start + rest)
    for start, rest in [
        ("uthor", "s?" + _FIELD),
        ("UTHOR", "S?" + _FIELD),
        ("aintainer", "s?" + _FIELD),
        (" by ", r"(?:(?<=ritten by )|(?<=reated by )|(?<=ributed by )|(?<=[ad]ded by ))(?P<zone>[A-Z][^\n]{0,80})"),
    ]
)
PARTICLES = frozenset("van von der den de del della di da dos du le la ten ter al el bin ibn zu y e af".split())
_WORD = r"(?:[^\W\d_]\.|[^\W\d_](?:[\w'’-]*[^\W\d_])?)"
NAME = re.compile(rf"(?<![\w@.<-]){_WORD}(?:[ ]{_WORD}){{1,4}}(?![\w@(=<-])")
BEFORE_MAIL = re.compile(rf"({_WORD}(?:[ ]{_WORD}){{1,4}})[\"']?,?[ ]?[<(]\Z")
# Words with capitals in an author's field that are no name.
NO_NAME = re.compile(
    r"\b(?:the|and|of|for|team|developers?|contributors?|authors?|project|community|foundation|inc|ltd|llc|gmbh|corporation|university|"
    r"license|public|domain|unknown|your|name|file|all|none|true|false|string|version|date|copyright|company|software|see|this)\b",
    re.IGNORECASE,
)
HOME = re.compile(
    r"(?:/home/(?<![\w.]/home/)|/Users/(?<![\w.]/Users/)|:(?:\\{1,2}|/)Users(?:\\{1,2}|/))(?P<user>[A-Za-z][\w.-]{1,31})(?=[\\/])"
)
SHARED_ACCOUNTS = frozenset(
    "user users username name me you your yourname yourusername myuser myname foo bar test tester testuser "
    "example runner runneradmin ubuntu vagrant app node circleci travis jovyan linuxbrew shared public default "
    "admin administrator root guest docker dev developer builder build git www ftp someone somebody anonymous "
    "nobody worker ec2-user centos debian pi vscode coder gitpod postgres all".split()
)
MAIL_NAME_CHARS = 80


def find_holders(text: str) -> Iterator[Finding]:
    """Holders named in copyright lines that have a sign or a year; prose about copyright has neither."""
    for pattern in HOLDERS:
        for match in pattern.finditer(text):
            end = HOLDER_END.search(match["holder"])
            holder = match["holder"][: end.start()] if end else match["holder"]
            if holder[:1].isupper() and len(holder) > 1:
                yield Finding(match.start("holder"), match.start("holder") + len(holder), "name")


def find_authors(text: str) -> Iterator[Finding]:
    """Names in author and maintainer fields."""
    for pattern in AUTHORS:
        for match in pattern.finditer(text):
            for name in NAME.finditer(match["zone"]):
                if is_name(name[0]):
                    yield Finding(match.start("zone") + name.start(), match.start("zone") + name.end(), "name")


def find_mail_names(text: str, emails: Iterable[Finding]) -> Iterator[Finding]:
    """`Jane Doe <…>`: the name before an address."""
    for email in emails:
        start = max(0, email.start - MAIL_NAME_CHARS)
        match = BEFORE_MAIL.search(text[start : email.start])
        if match:
            words = match[1].split(" ")
            while len(words) > 1 and not is_name(
                " ".join(words)
            ):  # "Thanks to Jane Doe <": the last words are the name
                words.pop(0)
            if len(words) > 1:
                yield Finding(start + match.end(1) - len(" ".join(words)), start + match.end(1), "name")


def is_name(words: str) -> bool:
    """Two to five words with capitals, particles ("van der") allowed between; no team and no company."""
    parts = words.split(" ")
    if NO_NAME.search(words) or not (parts[0][0].isupper() and parts[-1][0].isupper()):
        return False
    if all(part.isupper() for part in parts):  # "DO NOT EDIT": a heading
        return False
    return all(part[0].isupper() or part in PARTICLES for part in parts)


def find_homes(text: str) -> Iterator[Finding]:
    """User names in paths of home folders."""
    if "/home/" in text or "Users" in text:
        for match in HOME.finditer(text):
            if match["user"].lower() not in SHARED_ACCOUNTS:
                yield Finding(*match.span("user"), "home")
