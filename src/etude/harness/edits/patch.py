"""The patch envelope that models of several families were trained on, read and applied. Pure.

    *** Begin Patch
    *** Add File: path          lines that begin with +
    *** Delete File: path
    *** Update File: path       then optionally *** Move to: path, then hunks:
    @@ a line that stands before the hunk (optional)
     context, -removed, +added  then optionally *** End of File
    *** End Patch

A hunk's old lines (context and removed) must name one place after the previous hunk: exactly, else by the one normal form of
`editing`. Several equal places are refused rather than guessed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from etude.harness.edits.editing import MAX_HINT_LINES, Edited, How, normal, windows
from etude.harness.edits.indentation import CantTranslate, relocate
from etude.harness.edits.matching import closest
from etude.workspace.text_file import TextFile

Kind = Literal["add", "delete", "update"]


class BadPatch(Exception):
    """The text is no patch, or does not fit the file; the message is for the model."""


@dataclass
class Hunk:
    """`rows` are (mark, line) with mark one of " -+"; `headers` stand before it, outermost first; `last`: it ends the file."""

    headers: list[str] = field(default_factory=list)
    rows: list[tuple[str, str]] = field(default_factory=list)
    last: bool = False

    @property
    def old(self) -> list[str]:
        return [line for mark, line in self.rows if mark != "+"]

    @property
    def new(self) -> list[str]:
        return [line for mark, line in self.rows if mark != "-"]


@dataclass
class FileChange:
    """What a patch does to one file. `lines` are an added file's."""

    kind: Kind
    path: str
    lines: list[str] = field(default_factory=list)
    hunks: list[Hunk] = field(default_factory=list)
    target: str = ""


_KINDS: dict[str, Kind] = {
    "*** Add File: ": "add",
    "*** Delete File: ": "delete",
    "*** Update File: ": "update",
}
# An empty line in a hunk: context without its blank, or what many write before the next heading.
_BLANK = (" ", "")
_MOVE, _END_OF_FILE = "*** Move to: ", "*** End of File"


def parse(text: str) -> list[FileChange]:
    """The changes in order. Raises BadPatch with the line's number."""
    rows = text.replace("\r\n", "\n").strip("\n").split("\n")
    if rows[0].strip() != "*** Begin Patch" or rows[-1].strip() != "*** End Patch" or len(rows) < 2:
        raise BadPatch("a patch begins with the line *** Begin Patch and ends with *** End Patch")
    changes: list[FileChange] = []
    for number, row in enumerate(rows[1:-1], 2):
        kind: Kind | None = next((_KINDS[prefix] for prefix in _KINDS if row.startswith(prefix)), None)
        if kind is not None:
            changes.append(FileChange(kind, row.split(": ", 1)[1].strip()))
        elif not changes:
            raise BadPatch(
                f"line {number}: expected *** Add File:, *** Delete File: or *** Update File:, got {row[:60]!r}"
            )
        else:
            _read(changes[-1], row, number)
    _require(changes)
    return changes


def _read(change: FileChange, row: str, number: int) -> None:
    """One line below a file's heading."""
    if change.kind == "add":
        if not row.startswith("+"):
            raise BadPatch(f"line {number}: each line of an added file begins with +, got {row[:60]!r}")
        change.lines.append(row[1:])
    elif change.kind == "delete":
        raise BadPatch(f"line {number}: nothing may follow *** Delete File: {change.path}, got {row[:60]!r}")
    elif row.startswith(_MOVE):
        change.target = row[len(_MOVE) :].strip()
    elif row.startswith("@@"):
        header = row[2:].strip().removesuffix("@@").strip()
        if not change.hunks or change.hunks[-1].rows:
            change.hunks.append(Hunk())
        change.hunks[-1].headers += [header] if header else []
    elif row == _END_OF_FILE and change.hunks:
        change.hunks[-1].last = True
    elif row == "" or row[0] in " -+":
        if not change.hunks:
            change.hunks.append(Hunk())
        change.hunks[-1].rows.append((row[0], row[1:]) if row else _BLANK)
    else:
        raise BadPatch(f"line {number}: a hunk's lines begin with a blank, - or +, got {row[:60]!r}")


def _require(changes: list[FileChange]) -> None:
    if not changes:
        raise BadPatch("the patch changes no file")
    seen: set[str] = set()
    for change in changes:
        for path in (change.path, change.target) if change.target else (change.path,):
            if not path:
                raise BadPatch("a file's heading holds no path")
            if path in seen:
                raise BadPatch(f"{path} stands twice in the patch; put all its hunks under one heading")
            seen.add(path)
        for hunk in change.hunks:
            while len(hunk.rows) > 1 and hunk.rows[-1] is _BLANK:
                hunk.rows.pop()
        empty = [number for number, hunk in enumerate(change.hunks, 1) if not hunk.rows]
        if empty or change.kind == "update" and not change.hunks and not change.target:
            raise BadPatch(f"{change.path}: hunk {empty[0] if empty else 1} has no lines")


def apply(path: str, file: TextFile, hunks: list[Hunk]) -> Edited:
    """The file after all hunks. Raises BadPatch."""
    lines = list(file.lines[:-1] if file.lines[-1] == "" else file.lines)
    plain = [normal(line) for line in lines]
    at, found = 0, []
    for number, hunk in enumerate(hunks, 1):
        start, how = _place(f"{path}, hunk {number}", lines, plain, hunk, at)
        found.append((start, how, hunk))
        at = start + len(hunk.old)
    shift, spans = 0, []
    for start, how, hunk in found:
        stop = start + len(hunk.old)
        new = _kept(f"{path}, hunk {len(spans) + 1}", lines, start, hunk, how)
        file = file.splice(start + shift, stop + shift, new)
        spans.append((start + shift + 1, start + shift + len(new)))
        shift += len(new) - (stop - start)
    return Edited(file, tuple(how for _, how, _ in found), tuple(spans))


def _kept(name: str, lines: list[str], start: int, hunk: Hunk, how: How) -> list[str]:
    """A hunk's new lines, its context as the file has it, and what it adds in the file's indentation. Raises BadPatch."""
    found = lines[start : start + len(hunk.old)]
    try:
        added = hunk.new if how == "exact" else relocate(found, hunk.old, hunk.new, lines)
    except CantTranslate as unclear:
        raise BadPatch(
            f"{name}: it matches only if blanks are ignored, and {unclear}; copy the lines with their indentation"
        ) from unclear
    rest, fresh = iter(found), iter(added)
    new: list[str] = []
    for mark, _ in hunk.rows:
        have = next(rest) if mark != "+" else ""
        if mark != "-":
            line = next(fresh)
            new.append(have if mark == " " else line)
    return new


def _place(name: str, lines: list[str], plain: list[str], hunk: Hunk, at: int) -> tuple[int, How]:
    for header in hunk.headers:
        below = [i for i in range(at, len(lines)) if plain[i] == normal(header)]
        below = below or [i for i in range(at, len(lines)) if normal(header) in plain[i]]
        if not below:
            raise BadPatch(f"{name}: no line {header!r} at or below line {at + 1}")
        at = below[0] + 1
    if not hunk.old:
        return at if hunk.headers and not hunk.last else len(lines), "exact"
    ways: tuple[tuple[How, list[str], list[str]], ...] = (
        ("exact", lines, hunk.old),
        ("blanks", plain, [normal(line) for line in hunk.old]),
    )
    for how, have, wanted in ways:
        starts = windows(have, wanted, at) if how == "exact" or any(wanted) else []
        if hunk.last:
            starts = [start for start in starts if start + len(wanted) == len(lines)]
        if len(starts) == 1 or hunk.headers and starts:
            return starts[0], how
        if starts:
            where = ", ".join(str(start + 1) for start in starts[:9])
            raise BadPatch(
                f"{name}: its old lines stand in {len(starts)} places (lines {where}); add context or an @@ line"
            )
    hint = closest(lines, [normal(line) for line in hunk.old], MAX_HINT_LINES)
    below = f" at or below line {at + 1}" if at else ""
    raise BadPatch(f"{name}: its old lines stand nowhere{below}" + (f"; closest:\n{hint}" if hint else ""))
