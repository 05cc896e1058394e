"""What a call would change in a file, as lines of a diff, read from its arguments: edits, whole files, patches.

The names are those of our tools and of the agents whose sessions are imported (`old`/`new`, `old_string`/`new_string`,
`old_str`/`new_str`). Anything else is no edit and is shown as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from html import escape
from typing import Any

from etude.core.trace.unicode import visible

PAIRS = (("old", "new"), ("old_string", "new_string"), ("old_str", "new_str"))
WHOLE = ("contents", "content", "file_text")  # of a file that is written whole
PATCH = ("patch", "input")
PATCH_STARTS = ("*** Begin Patch", "--- ", "diff --git ")
PLACES = ("path", "file_path", "filename")
MAX_LINES = 4000  # of one side: SequenceMatcher takes a second for twice as many that differ throughout

Line = tuple[str, str]  # "+", "-", "@" (a heading) or " ", and the text


def diff_of(arguments: Mapping[str, Any]) -> list[Line] | None:
    """The lines, or None if the call is no edit."""
    pairs = [arguments, *_edits(arguments)]
    found = [pair for one in pairs if isinstance(one, Mapping) and (pair := _pair(one)) is not None]
    if found:
        return [line for n, (old, new) in enumerate(found) for line in _between(old, new, heading=n > 0)]
    for name in WHOLE:
        if isinstance(arguments.get(name), str) and any(place in arguments for place in PLACES):
            return [("+", line) for line in arguments[name].split("\n")]
    for name in PATCH:
        text = arguments.get(name)
        if isinstance(text, str) and text.startswith(PATCH_STARTS):
            return patch_lines(text)
    return None


def patch_lines(text: str) -> list[Line]:
    """A patch as it is, with its headings marked."""
    return [_patch_line(line) for line in text.split("\n")]


def render_diff(lines: Sequence[Line]) -> str:
    """As HTML; signs are text, so that colour is not the only thing that tells them apart."""
    kinds = {"+": "added", "-": "gone", "@": "place", " ": "same"}
    rows = "".join(f'<span class="{kinds[sign]}">{sign} {_text(text)}\n</span>' for sign, text in lines)
    return f'<pre class="diff">{rows}</pre>'


def diff_arguments(arguments: Mapping[str, Any]) -> set[str]:
    """Arguments that a diff shows, so that they need not be shown again."""
    return {*(name for pair in PAIRS for name in pair), *WHOLE, *PATCH, "edits"} & arguments.keys()


def _edits(arguments: Mapping[str, Any]) -> Sequence[Any]:
    edits = arguments.get("edits")
    return edits if isinstance(edits, list) else []


def _pair(arguments: Mapping[str, Any]) -> tuple[str, str] | None:
    for old, new in PAIRS:
        if isinstance(arguments.get(old), str) and isinstance(arguments.get(new), str):
            return arguments[old], arguments[new]
    return None


def _between(old: str, new: str, *, heading: bool) -> list[Line]:
    before, after = old.split("\n") if old else [], new.split("\n") if new else []
    lines: list[Line] = [("@", "")] if heading else []
    if max(len(before), len(after)) > MAX_LINES:
        return lines + [("-", line) for line in before] + [("+", line) for line in after]
    for kind, a, b, c, d in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if kind == "equal":
            lines += [(" ", line) for line in before[a:b]]
        else:
            lines += [("-", line) for line in before[a:b]] + [("+", line) for line in after[c:d]]
    return lines


def _patch_line(line: str) -> Line:
    if line.startswith(("***", "@@", "---", "+++", "diff ", "index ")):
        return "@", line
    return (line[0], line[1:]) if line[:1] in ("+", "-") else (" ", line.removeprefix(" "))


def _text(value: str) -> str:
    return escape(visible(value))
