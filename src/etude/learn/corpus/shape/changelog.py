"""The part of a changelog that was written between two versions.

A heading is a line that begins at the left margin and names a version near its beginning, in one of the spellings that projects use: under a mark
(`## 1.2`, `= 1.2 =`), underlined, `Version 1.2`, `[1.2] - 2024-01-01`, `name 1.2 (date)`, `name (1.2-1) unstable; urgency=low`.
Newest first and oldest first are both read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

NAMES = re.compile(
    r"(?i)^(?:.*/)?(?:changelog|changes|news|history|releases?|release[-_]?notes|whats[-_]?new)(?:\.(?:md|rst|txt|markdown|adoc|org))?$"
)
# A Debian version may have an epoch before it ("2:4.0.2-1").
VERSION = r"v?(?:\d+:)?(?P<version>\d+(?:\.\d+)+[\w.+~-]*|\d+(?=[\])]))"
HEADING = re.compile(
    rf"^(?P<mark>[#=*]+[ \t]*)?(?:(?:\*\*|[\w.'+@/-]{{1,40}})[ \t:]+){{0,5}}?[\[(`*]*{VERSION}"
    r"(?P<rest>[^\n]{0,80})$",
    re.IGNORECASE,
)
UNDERLINE = re.compile(r"^([=\-~^#*+])\1{2,}[ \t]*$")
DATED = re.compile(r"\d{4}|unreleased|released|urgency=", re.IGNORECASE)


def changelog_section(texts: Mapping[str, str], old: str, new: str) -> str:
    """The text between the headings of `old` and `new`, the latter included, in the first changelog that has it; "" if none has. `texts` is
    path -> text of a project's files."""
    found = ""
    for path in sorted((path for path in texts if NAMES.match(path)), key=lambda path: (path.count("/"), path)):
        found = _between(texts[path].split("\n"), old, new)
        if found:
            break
    return found


def _between(lines: Sequence[str], old: str, new: str) -> str:
    headings = [(place, version) for place in range(len(lines)) if (version := _heading(lines, place))]
    names = [version for _, version in headings]
    if _plain(new) not in names:
        return ""
    at = names.index(_plain(new))
    before = names.index(_plain(old)) if _plain(old) in names else None
    if before is None or before > at:  # newest first, or the old one is not mentioned: up to the next heading
        first, last = at, before if before is not None else at + 1
    else:  # oldest first
        first, last = before + 1, at + 1
    end = headings[last][0] if last < len(headings) else len(lines)
    return "\n".join(lines[headings[first][0] : end]).strip("\n")


def _heading(lines: Sequence[str], place: int) -> str:
    """The version that the line is a heading of, or ""."""
    line = lines[place]
    if not line or line[0] in " \t-+>|" or len(line) > 120:
        return ""
    found = HEADING.match(line)
    if not found:
        return ""
    underlined = place + 1 < len(lines) and UNDERLINE.match(lines[place + 1])
    bare = len(found["rest"].strip(" \t:])}*`=#-?").removeprefix("final").removeprefix("release")) == 0
    if found["mark"] or underlined or bare or DATED.search(found["rest"]):
        return _plain(found["version"])
    return ""


def _plain(version: str) -> str:
    """1.2.0, v1.2 and 1:1.2 are the same release."""
    version = version.strip().rstrip(".-+~").lower().removeprefix("v").rpartition(":")[2]
    return re.sub(r"(?:\.0)+$", "", version)
