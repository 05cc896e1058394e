"""Changes written as search/replace blocks, as coding agents edit: each names some lines that occur once in the file, and their replacement.

    <<<<<<< SEARCH
    old lines
    =======
    new lines
    >>>>>>> REPLACE

Blocks are applied one after the other. A block takes as many unchanged lines around its change as it needs to be unmistakable.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from etude.learn.corpus.shape.line_diff import LineChange, changes, split_lines
from etude.learn.corpus.shape.unified import grouped

SEARCH, DIVIDER, REPLACE = "<<<<<<< SEARCH\n", "=======\n", ">>>>>>> REPLACE\n"
CONTEXT_LINES = (1, 3, 8, 20)  # tried in turn


class TextBlock(NamedTuple):
    search: str
    replace: str

    def __str__(self) -> str:
        return f"{SEARCH}{self.search}{DIVIDER}{self.replace}{REPLACE}"


def search_replace_blocks(old: str, new: str) -> list[TextBlock] | None:
    """Blocks that make `new` of `old`, both ended by a line end first if they aren't; [] if nothing changed. None where it can't be said:
    lines like the marks themselves, or no context up to 20 lines that is unmistakable."""
    old, new = ended(old), ended(new)
    before, after = split_lines(old), split_lines(new)
    found = changes(before, after)
    if not found:
        return []
    marks = {SEARCH, DIVIDER, REPLACE}
    if not old or not marks.isdisjoint(before) or not marks.isdisjoint(after):
        return None
    for context in CONTEXT_LINES:
        blocks = [_block(group, before, after, context) for group in grouped(found, context)]
        if apply_blocks(old, blocks) == new:
            return blocks
    return None


def apply_blocks(text: str, blocks: Sequence[TextBlock]) -> str | None:
    """The text with the blocks applied in turn; None if what one searches is not there exactly once."""
    for block in blocks:
        at = _only_place(text, block.search)
        if at is None:
            return None
        text = text[:at] + block.replace + text[at + len(block.search) :]
    return text


def ended(text: str) -> str:
    return text if not text or text.endswith("\n") else text + "\n"


def _only_place(text: str, search: str) -> int | None:
    """Where these whole lines begin, if they occur there once."""
    if not search:
        return None
    places = []
    at = text.find(search)
    while at >= 0 and len(places) < 2:
        if not at or text[at - 1] == "\n":
            places.append(at)
        at = text.find(search, at + 1)
    return places[0] if len(places) == 1 else None


def _block(group: Sequence[LineChange], old: Sequence[str], new: Sequence[str], context: int) -> TextBlock:
    start = max(0, group[0].start - context)
    end = min(len(old), group[-1].end + context)
    new_start = group[0].new_start - (group[0].start - start)
    new_end = group[-1].new_end + (end - group[-1].end)
    return TextBlock("".join(old[start:end]), "".join(new[new_start:new_end]))
