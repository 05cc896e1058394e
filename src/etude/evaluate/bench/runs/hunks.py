"""The edits that turn a text into another, as an agent makes them: each replaces a piece that occurs exactly once."""

from __future__ import annotations

import difflib

from etude.agent.harness.edits.matching import count_occurrences

Edit = tuple[str, str]  # old, new


def hunks(before: str, after: str) -> list[Edit]:
    """Applied in order, each replacing its one match, they lead from `before` to `after`. Nothing if they are equal.

    Pieces are whole lines with as much context as makes them unique. Later pieces come first, so that the text above is
    still the text that was looked at. Where a piece can't be made unique, the whole text is the piece.
    """
    if before == after:
        return []
    if not before:
        return [("", after)]
    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    changes = [op for op in difflib.SequenceMatcher(a=old, b=new, autojunk=False).get_opcodes() if op[0] != "equal"]
    current, edits, below = before, [], len(old)
    for _, i1, i2, j1, j2 in reversed(changes):
        edit = _piece(current, old, (i1, i2), below, "".join(new[j1:j2]))
        if edit is None:
            return [(before, after)]
        current = current.replace(*edit)
        edits.append(edit)
        below = i1
    return edits if current == after else [(before, after)]


def _piece(current: str, lines: list[str], at: tuple[int, int], below: int, text: str) -> Edit | None:
    """Lines `at` replaced by `text`: with lines above, then with those down to `below`, until the piece is the only one."""
    start, end = at
    above = [(first, end) for first in range(start, -1, -1)]
    for first, last in [*above, *((0, last) for last in range(end + 1, below + 1))]:
        old = "".join(lines[first:last])
        if old.strip() and count_occurrences(current, old) == 1:
            return old, "".join(lines[first:start]) + text + "".join(lines[end:last])
    return None
