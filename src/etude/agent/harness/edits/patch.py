"""The patch envelope that models of several families were trained on, read and applied. Pure.

    *** Begin Patch
    *** Add File: path          lines that begin with +
    *** Delete File: path
    *** Update File: path       then optionally *** Move to: path, then hunks:
    @@ a line before the hunk (optional)
     context, -removed, +added  then optionally *** End of File
    *** End Patch

A hunk's old lines (context and removed) must name one place: after the previous hunk if they are there, else anywhere; exactly, else by
the one normal form of `editing`. Several equal places are refused rather than guessed, unless an `@@ -7,3 +7,4 @@` says which.

Read as well, since models write them: a code fence or a here-document around the envelope, no last line, several sections of one file,
blank lines without their mark, and `\\ No newline at end of file`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal

from etude.agent.harness.edits.editing import MAX_HINT_LINES, EditedFile, MatchKind, normal, windows
from etude.agent.harness.edits.indentation import IndentationUnclear, relocate
from etude.agent.harness.edits.matching import closest
from etude.agent.workspace.text_file import TextFile

PatchKind = Literal["add", "delete", "update"]


class PatchError(Exception):
    """The text is no patch, or does not fit the file; the message is for the model."""


class HunkNotFound(PatchError):
    """A hunk's lines are nowhere in the file, or not where they were looked for."""


@dataclass
class PatchHunk:
    """`rows` are (mark, line) with mark one of " -+"; `headers` are before it, outermost first; `last`: it ends the file; `line`: where
    a unified diff says that it begins, from 1; -1 for any other."""

    headers: list[str] = field(default_factory=list)
    line: int = -1
    rows: list[tuple[str, str]] = field(default_factory=list)
    last: bool = False

    @property
    def old(self) -> list[str]:
        return [line for mark, line in self.rows if mark != "+"]

    @property
    def new(self) -> list[str]:
        return [line for mark, line in self.rows if mark != "-"]


@dataclass
class PatchedFile:
    """What a patch does to one file. `lines` are an added file's."""

    kind: PatchKind
    path: str
    lines: list[str] = field(default_factory=list)
    hunks: list[PatchHunk] = field(default_factory=list)
    target: str = ""
    blank_end: int = 0  # of an added file's lines, the last ones that are blank and had no mark


_KINDS: dict[str, PatchKind] = {
    "*** Add File: ": "add",
    "*** Delete File: ": "delete",
    "*** Update File: ": "update",
}
# An empty line in a hunk: context without its blank, or what many write before the next heading.
_BLANK = (" ", "")
_MOVE, _END_OF_FILE = "*** Move to: ", "*** End of File"
_BEGIN, _END = "*** Begin Patch", "*** End Patch"
_NO_NEWLINE = "\\ No newline at end of file"
# The header of a unified diff's hunk; what follows it is the line above.
_UNIFIED = re.compile(r"@@ -(\d{1,9})(?:,\d+)? \+\d+(?:,\d+)? @@ ?(.*)")
# The line that may open what is around the envelope.
_WRAPPER = re.compile(r"```\w*|(?:apply_patch\s+)?<<-?\s*['\"]?(\w+)['\"]?")


def parse(text: str) -> list[PatchedFile]:
    """The changes in order. Raises BadPatch with the line's number."""
    text = text.replace("\r\n", "\n")
    rows = _unwrapped(text).strip("\n").split("\n")
    if rows[0].strip() != _BEGIN:
        raise PatchError(f"a patch begins with the line {_BEGIN} and ends with {_END}, got {rows[0][:60]!r}")
    stop = next((at for at, row in enumerate(rows) if row.strip() == _END), len(rows))
    if any(row.strip() for row in rows[stop + 1 :]):
        raise PatchError(f"line {stop + 2}: nothing may follow {_END}")
    changes: list[PatchedFile] = []
    for number, row in enumerate(rows[1:stop], 2):
        kind: PatchKind | None = next((_KINDS[prefix] for prefix in _KINDS if row.startswith(prefix)), None)
        if kind is not None:
            changes.append(PatchedFile(kind, row.split(": ", 1)[1].strip()))
        elif not changes:
            raise PatchError(
                f"line {number}: expected *** Add File:, *** Delete File: or *** Update File:, got {row[:60]!r}"
            )
        else:
            _read(changes[-1], row, number)
    changes = _joined(changes)
    _require(changes)
    return changes


def _unwrapped(text: str) -> str:
    """Without a code fence or a here-document around it."""
    first, *inner = text.strip().split("\n")
    wrapper = _WRAPPER.fullmatch(first.rstrip())
    return "\n".join(inner[:-1]) if wrapper and inner and inner[-1] in ("```", wrapper[1]) else text


def _joined(changes: list[PatchedFile]) -> list[PatchedFile]:
    """Several updates of one file as one."""
    found: dict[str, PatchedFile] = {}
    for change in changes:
        first = found.get(change.path)
        if first is not None and first.kind == change.kind == "update" and not first.target:
            first.hunks += change.hunks
            first.target = change.target
        elif first is None:
            found[change.path] = change
        else:
            raise PatchError(f"{change.path} is twice in the patch; say once what becomes of it")
    return list(found.values())


def _read(change: PatchedFile, row: str, number: int) -> None:
    """One line below a file's heading."""
    if row == _NO_NEWLINE:
        return
    if change.kind == "add":
        if row and not row.startswith("+"):
            raise PatchError(f"line {number}: each line of an added file begins with +, got {row[:60]!r}")
        change.lines.append(row[1:])
        change.blank_end = 0 if row else change.blank_end + 1
    elif change.kind == "delete":
        if not row.strip():
            return
        raise PatchError(f"line {number}: nothing may follow *** Delete File: {change.path}, got {row[:60]!r}")
    elif row.startswith(_MOVE):
        change.target = row[len(_MOVE) :].strip()
    elif row.startswith("@@"):
        unified = _UNIFIED.fullmatch(row)
        header = unified[2].strip() if unified else row[2:].strip().removesuffix("@@").strip()
        if not change.hunks or change.hunks[-1].rows:
            change.hunks.append(PatchHunk())
        change.hunks[-1].headers += [header] if header else []
        change.hunks[-1].line = int(unified[1]) if unified else -1
    elif row == _END_OF_FILE and change.hunks:
        change.hunks[-1].last = True
    elif row == "" or row[0] in " -+":
        if not change.hunks:
            change.hunks.append(PatchHunk())
        change.hunks[-1].rows.append((row[0], row[1:]) if row else _BLANK)
    else:
        raise PatchError(f"line {number}: a hunk's lines begin with a blank, - or +, got {row[:60]!r}")


def _require(changes: list[PatchedFile]) -> None:
    if not changes:
        raise PatchError("the patch changes no file")
    seen: set[str] = set()
    for change in changes:
        for path in (change.path, change.target) if change.target else (change.path,):
            if not path:
                raise PatchError("a file's heading holds no path")
            if path in seen:
                raise PatchError(f"{path} is twice in the patch; say once what becomes of it")
            seen.add(path)
        del change.lines[len(change.lines) - change.blank_end :]
        for hunk in change.hunks:
            while len(hunk.rows) > 1 and hunk.rows[-1] is _BLANK:
                hunk.rows.pop()
        empty = [number for number, hunk in enumerate(change.hunks, 1) if not hunk.rows]
        if empty or change.kind == "update" and not change.hunks and not change.target:
            raise PatchError(f"{change.path}: hunk {empty[0] if empty else 1} has no lines")


def apply(path: str, file: TextFile, hunks: list[PatchHunk]) -> EditedFile:
    """The file after all hunks. Raises BadPatch."""
    lines = list(file.lines[:-1] if file.lines[-1] == "" else file.lines)
    plain = [normal(line) for line in lines]
    at = 0
    found: list[tuple[int, MatchKind, PatchHunk, str]] = []
    for number, hunk in enumerate(hunks, 1):
        name = f"{path}, hunk {number}"
        start, how = _place(name, lines, plain, hunk, at)
        if any(start < other + len(old.old) and other < start + len(hunk.old) for other, _, old, _ in found):
            raise PatchError(f"{name}: it changes lines that an earlier hunk changes; make one hunk of both")
        found.append((start, how, hunk, name))
        at = start + len(hunk.old)
    found.sort(key=lambda one: one[0])
    shift, spans = 0, []
    for start, how, hunk, name in found:
        stop = start + len(hunk.old)
        new = _kept(name, lines, start, hunk, how)
        file = file.splice(start + shift, stop + shift, new)
        spans.append((start + shift + 1, start + shift + len(new)))
        shift += len(new) - (stop - start)
    return EditedFile(file, tuple(how for _, how, _, _ in found), tuple(spans))


def _kept(name: str, lines: list[str], start: int, hunk: PatchHunk, how: MatchKind) -> list[str]:
    """A hunk's new lines, its context as the file has it, and what it adds in the file's indentation. Raises BadPatch."""
    found = lines[start : start + len(hunk.old)]
    try:
        added = hunk.new if how == "exact" else relocate(found, hunk.old, hunk.new, lines)
    except IndentationUnclear as unclear:
        raise PatchError(
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


def _place(name: str, lines: list[str], plain: list[str], hunk: PatchHunk, at: int) -> tuple[int, MatchKind]:
    """Where a hunk begins, from 0: at or below line `at`, else anywhere; one with a number wherever it says. Raises BadPatch."""
    at = at if hunk.line < 0 else 0
    try:
        return _place_below(name, lines, plain, hunk, at)
    except HunkNotFound as below:
        if at == 0:
            raise
        try:
            return _place_below(name, lines, plain, hunk, 0)
        except HunkNotFound:
            raise below from None  # the words for the part that was to be searched first


def _place_below(name: str, lines: list[str], plain: list[str], hunk: PatchHunk, at: int) -> tuple[int, MatchKind]:
    for header in hunk.headers:
        wanted = normal(header)
        below = next((i for i in range(at, len(lines)) if plain[i] == wanted), -1)
        below = below if below >= 0 else next((i for i in range(at, len(lines)) if wanted in plain[i]), -1)
        if below < 0:
            if hunk.line >= 0:
                continue  # in a unified diff it only repeats the lines above
            raise HunkNotFound(f"{name}: no line {header!r} at or below line {at + 1}")
        at = below + 1 if hunk.line < 0 else at
    if not hunk.old:
        if hunk.line >= 0 and not hunk.last:
            return min(hunk.line, len(lines)), "exact"  # behind that line: nothing is taken away there
        return at if hunk.headers and not hunk.last else len(lines), "exact"
    ways: tuple[tuple[MatchKind, list[str], list[str]], ...] = (
        ("exact", lines, hunk.old),
        ("blanks", plain, [normal(line) for line in hunk.old]),
    )
    for how, have, wanted in ways:
        starts = windows(have, wanted, at) if how == "exact" or any(wanted) else []
        if hunk.last:
            starts = [start for start in starts if start + len(wanted) == len(lines)]
        if hunk.line >= 0 and starts:
            return min(starts, key=lambda start: (abs(start + 1 - hunk.line), start)), how
        if len(starts) == 1 or hunk.headers and starts:
            return starts[0], how
        if starts:
            where = ", ".join(str(start + 1) for start in starts[:9])
            raise PatchError(
                f"{name}: its old lines match {len(starts)} places (lines {where}); add context or an @@ line"
            )
    hint = closest(lines, [normal(line) for line in hunk.old], MAX_HINT_LINES)
    below = f" at or below line {at + 1}" if at else ""
    raise HunkNotFound(f"{name}: its old lines were not found{below}" + (f"; closest:\n{hint}" if hint else ""))
