"""What an edit call wrote, by its own arguments: of our presets and of other agents alike. A session's `edit` entries keep only the
hashes of lines; who reads what was written needs the lines."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from etude.core.trace.change import changed_spans, split
from etude.core.trace.message import ToolCall

_PATHS = ("path", "file_path", "target_file", "filePath")
_OLD = ("old", "old_string", "old_str")
_NEW = ("new", "new_string", "new_str", "content", "contents", "file_text")
_FILE = re.compile(r"^(?:\*\*\* (Update|Add|Delete) File: |\+\+\+ (?:b/)?)(?P<path>\S.*)$")

_HUNK = re.compile(r"^@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@")


@dataclass(frozen=True)
class EditedLines:
    """Lines that one call put into a file, and those it took out. `whole`: the file is new or written over, and what it held is not known."""

    path: str
    new: tuple[str, ...]
    gone: tuple[str, ...] = ()
    whole: bool = False

    def lines(self) -> list[str]:
        """As a diff shows them."""
        return [f"{self.path}:", *(f"-{line}" for line in self.gone), *(f"+{line}" for line in self.new)]


def edits_of_call(call: ToolCall) -> Iterator[EditedLines]:
    """All that the call wrote, file by file; nothing for a call that writes no text."""
    path = _text(call.arguments, _PATHS)
    patch = call.arguments.get("patch", call.arguments.get("input"))
    if isinstance(patch, str):
        yield from edits_of_patch(patch)
    elif path is not None and isinstance(call.arguments.get("edits"), list):
        for row in call.arguments["edits"]:
            if isinstance(row, dict):
                yield from _replaced(path, row)
    elif path is not None:
        yield from _replaced(path, call.arguments)


def _replaced(path: str, row: dict[str, Any]) -> Iterator[EditedLines]:
    old, new = _text(row, _OLD), _text(row, _NEW)
    if new is None and old is None:
        return
    before, after = split(old or ""), split(new or "")
    spans = changed_spans(before, after)
    gone = tuple(line for a, b, _, _ in spans for line in before[a:b])
    yield EditedLines(path, tuple(line for _, _, a, b in spans for line in after[a:b]), gone, whole=old is None)


def edits_of_patch(patch: str) -> Iterator[EditedLines]:
    """The files of a unified diff, or of a patch envelope (`*** Update File: …`).

    Where a hunk says how many lines it has, they are its own whatever they look like: a line of code can't pass for a header.
    """
    path, before, whole = "", "", False
    new: list[str] = []
    gone: list[str] = []
    left = [0, 0]  # lines of the open hunk that are still to come: old, new
    for line in patch.splitlines():
        counted = left[0] > 0 or left[1] > 0
        if (hunk := _HUNK.match(line)) is not None and not counted:
            left = [int(hunk[1] or 1), int(hunk[2] or 1)]
        elif line.startswith("--- ") and not counted:
            before = line[4:].strip().removeprefix("a/")
        elif (match := _FILE.match(line)) is not None and not counted:
            if path:
                yield EditedLines(path, tuple(new), tuple(gone), whole)
            named = match["path"].strip()
            path, new, gone = (before if named == "/dev/null" else named), [], []
            whole = match[1] == "Add" or before == "/dev/null"
        elif path and line[:1] in ("+", "-"):
            (new if line[0] == "+" else gone).append(line[1:])
            left[line[0] == "+"] -= 1
        elif line[:1] in (" ", ""):
            left = [left[0] - 1, left[1] - 1]
    if path:
        yield EditedLines(path, tuple(new), tuple(gone), whole)


def _text(row: dict[str, Any], names: tuple[str, ...]) -> str | None:
    return next((row[name] for name in names if isinstance(row.get(name), str)), None)
