"""Debian's patch series as `patch` records: what a patch is for, in its author's words, and the diff.

`debian/patches/series` names the patches in order (dpkg-source(1), format "3.0 (quilt)"); each begins with headers by DEP-3 ("Patch Tagging
Guidelines", dep-team.debian.net/deps/dep3), or with a mail's as `git format-patch` writes it. Description and bug numbers are kept; names
and addresses of people are not.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from etude.learn.corpus.record import TextRecord

FOLDER = "debian/patches/"
# About 8,000 tokens: longer ones are imports of whole upstream branches.
LONGEST_CHARS = 32_000

FIELD = re.compile(r"^(?P<name>[A-Za-z][A-Za-z0-9-]*):[ \t]*(?P<value>.*)$")
DIFF = re.compile(r"^(?:diff |Index: |--- \S|={20,}$)")
SIGNATURE = re.compile(r"\n-- \n[\d.]+[^\n]*\s*\Z")  # git's version, under a mail
SUBJECT_MARK = re.compile(r"^(?:\[[^\]]*\][ \t]*)+")


def patch_records(
    files: Mapping[str, str], like: TextRecord, *, longest_chars: int = LONGEST_CHARS
) -> tuple[list[TextRecord], list[tuple[str, str]]]:
    """The series' patches in its order, and (path, reason) of those left out. `files` is path -> text of the package (only
    `debian/patches/` is looked at), `like` any record of it: source, project, version, date and licence are taken over."""
    found: list[TextRecord] = []
    refused: list[tuple[str, str]] = []
    for name in series(files.get(FOLDER + "series", "")):
        path = FOLDER + name
        text = files.get(path)
        if text is None:
            refused.append((path, "named in the series but not there"))
            continue
        description, diff = parse_patch(text)
        if not description:
            refused.append((path, "no description"))
        elif not diff:
            refused.append((path, "no diff"))
        elif len(description) + len(diff) > longest_chars:
            refused.append((path, f"longer than {longest_chars} characters"))
        else:
            found.append(replace(like, text=f"{description}\n\n{diff}", kind="patch", path=path, language="diff"))
    return found, refused


def series(text: str) -> list[str]:
    """File names in order; comments and options (`-p1`) are left out."""
    lines = [line.partition("#")[0].split() for line in text.split("\n")]
    return [line[0] for line in lines if line]


def parse_patch(patch: str) -> tuple[str, str]:
    """(description with its bugs, diff) of a patch's text."""
    lines = patch.split("\n")
    start = next((place for place, line in enumerate(lines) if DIFF.match(line)), len(lines))
    fields, free = _headers(lines[:start])
    title = SUBJECT_MARK.sub("", fields.get("description") or fields.get("subject") or "")
    bugs = [value for name, value in fields.items() if name == "bug" or name.startswith("bug-")]
    parts = [title.strip(), free, *(f"Bug: {bug.strip()}" for bug in bugs)]
    diff = SIGNATURE.sub("", "\n".join(lines[start:])).strip("\n")
    return "\n\n".join(part for part in parts if part), diff + "\n" if diff else ""


def _headers(lines: list[str]) -> tuple[dict[str, str], str]:
    """Fields by lower-case name, the first of each, with the lines that go on; and the free text behind them, up to `---`."""
    fields: dict[str, str] = {}
    free: list[str] = []
    current = ""
    for line in lines:
        field = FIELD.match(line)
        if line.rstrip() == "---":  # the diffstat of a mail follows
            break
        if field and not any(free):
            current = field["name"].lower()
            current = current if current not in fields else ""  # a second one of its kind is left out
            if current:
                fields[current] = field["value"]
        elif line[:1] in " \t" and line.strip() and current and not any(free):
            fields[current] += "\n" + ("" if line.strip() == "." else line.strip())
        elif not line.startswith(("From ", "## ", "#!")) and not _is_trailer(line):
            free.append(line.removeprefix("# ").rstrip())
            current = ""
    return fields, "\n".join(free).strip("\n")


def _is_trailer(line: str) -> bool:
    """A mail's last lines name people: Signed-off-by and the like."""
    field = FIELD.match(line)
    return bool(
        field
        and field["name"]
        .lower()
        .endswith(("-by", "cc", "author", "from", "reviewer", "last-update", "origin", "forwarded"))
    )
