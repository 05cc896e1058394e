"""What would still tell how a deleted feature was written: its mentions in documents, and copies of its lines anywhere.

`undocumented` takes mentions out of prose; `leftovers` is the scan afterwards, over every text that the agent gets.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping

PROSE = re.compile(r"\.(md|rst|txt|adoc)$|(^|/)(README|CHANGES|CHANGELOG|HISTORY|NEWS)[^/]*$", re.IGNORECASE)
RUN = 4  # neighbouring lines of the deleted code that nowhere else may stand
LETTERS = 12  # a line with fewer is said everywhere (`else:`, `return None`)


def undocumented(text: str, names: Collection[str]) -> str:
    """Without the paragraphs and list items that speak of the names as code."""
    said = _said(names)
    blocks = re.split(r"(\n[ \t]*\n+|\n(?=[ \t]*[-*+] ))", text)
    kept: list[str] = []
    for at in range(0, len(blocks), 2):
        if not said.search(blocks[at]):
            kept += blocks[at : at + 2]
    return "".join(kept)


def leftovers(removed: Iterable[str], left: Mapping[str, str], names: Collection[str]) -> list[str]:
    """Where the workspace still holds runs of the removed lines, or private names of them."""
    runs = {run for text in removed for run in _runs(text)}
    private = [name for name in sorted(names) if name.startswith("_")]
    found = []
    for path, text in sorted(left.items()):
        if any(run in runs for run in _runs(text)):
            found.append(f"{path} holds {RUN} lines of the deleted code")
        found += [f"{path} names {name}" for name in private if re.search(rf"\b{re.escape(name)}\b", text)]
    return found


def _said(names: Collection[str]) -> re.Pattern[str]:
    """A name in backticks, called, behind an import, or in a directive; not the word in a sentence."""
    one = "|".join(re.escape(name) for name in sorted(names))
    return re.compile(rf"`[\w.~]*\b(?:{one})\b|\b(?:{one})\(|auto\w+::\s+[\w.]*\b(?:{one})\b|import[^\n]*\b(?:{one})\b")


def _runs(text: str) -> Iterable[tuple[str, ...]]:
    lines = [line.strip() for line in text.splitlines()]
    lines = [line for line in lines if sum(map(str.isalpha, line)) >= LETTERS]
    return zip(*(lines[start:] for start in range(RUN)), strict=False)
