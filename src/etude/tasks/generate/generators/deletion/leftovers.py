"""What would still tell how a deleted feature was written: its mentions in documents, and copies of its lines anywhere.

`undocumented` takes mentions out of prose; `leftovers` is the scan afterwards, over every text that the agent gets.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping

from etude.tasks.protected import PROSE

RUN = 4  # neighbouring lines of the deleted code make a run
COPIED = 0.25  # of the runs of one definition, in one file
LETTERS = 12  # a line with fewer is said everywhere (`else:`, `return None`)


def remove_mentions(text: str, names: Collection[str]) -> str:
    """Without the paragraphs and list items that speak of the names as code."""
    mention = _mention_pattern(names)
    blocks = re.split(r"(\n[ \t]*\n+|\n(?=[ \t]*[-*+] ))", text)
    kept: list[str] = []
    for at in range(0, len(blocks), 2):
        if not mention.search(blocks[at]):
            kept += blocks[at : at + 2]
    return "".join(kept)


def leftovers(removed: Iterable[str], left: Mapping[str, str], names: Collection[str]) -> list[str]:
    """Where the workspace still holds a share of a removed definition, or code with private names. What siblings of one kind have in
    common is less than `COPIED` and stays: it is how the project is written."""
    wholes = [set(_runs(text)) for text in removed]
    private = [name for name in sorted(names) if name.startswith("_")]
    found = []
    for path, text in sorted(left.items()):
        there = set(_runs(text))
        matches = [
            (len(whole & there), len(whole)) for whole in wholes if whole and len(whole & there) >= COPIED * len(whole)
        ]
        if matches:
            found.append(f"{path} holds {matches[0][0]} of {matches[0][1]} runs of lines of deleted code")
        if not PROSE.search(path):
            found += [f"{path} names {name}" for name in private if re.search(rf"\b{re.escape(name)}\b", text)]
    return found


def _mention_pattern(names: Collection[str]) -> re.Pattern[str]:
    """A name in backticks, called, behind an import, or in a directive; not the word in a sentence."""
    one = "|".join(re.escape(name) for name in sorted(names))
    return re.compile(rf"`[\w.~]*\b(?:{one})\b|\b(?:{one})\(|auto\w+::\s+[\w.]*\b(?:{one})\b|import[^\n]*\b(?:{one})\b")


def _runs(text: str) -> Iterable[tuple[str, ...]]:
    lines = [line.strip() for line in text.splitlines()]
    lines = [line for line in lines if sum(map(str.isalpha, line)) >= LETTERS]
    return zip(*(lines[start:] for start in range(RUN)), strict=False)
