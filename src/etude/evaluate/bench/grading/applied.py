"""The files that an attempt left, out of those it began with and its kept patch: what a grader that runs things needs."""

from __future__ import annotations

import re
from collections.abc import Mapping

from etude.tasks.content import like

_HUNK = re.compile(r"^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_NO_END = "\\ No newline at end of file"
NOWHERE = "/dev/null"


class PatchMismatch(ValueError):
    """A patch that does not fit the files, or holds a file that is no text; names the path."""


def apply_patch(before: Mapping[str, str], patch: str) -> dict[str, bytes]:
    """The files after a patch of `runs.kept`: complete hunks, exact lines. Raises PatchMismatch."""
    files = {path: text.encode() for path, text in before.items()}
    lines = patch.split("\n")[:-1] if patch else []
    at = 0
    while at < len(lines):
        if (name := _removed(lines[at])) in before:
            files.pop(name, None)
            at += 1
            continue
        if lines[at].startswith("Binary file "):
            raise PatchMismatch(f"{lines[at]}: what is no text was not kept")
        if not lines[at].startswith("--- ") or at + 1 >= len(lines) or not lines[at + 1].startswith("+++ "):
            raise PatchMismatch(f"line {at + 1} of the patch is no header of a file: {lines[at][:80]!r}")
        old, new = lines[at][4:].removeprefix("a/"), lines[at + 1][4:].removeprefix("b/")
        path = old if new == NOWHERE else new
        if old != NOWHERE and old not in before:
            raise PatchMismatch(f"{path}: the patch changes a file that is not there")
        text, at = _patched(before.get(path, "") if old != NOWHERE else "", lines, at + 2, path)
        if new == NOWHERE:
            files.pop(path, None)
        else:
            files[path] = like(before.get(path), text).encode()
    return files


def _removed(line: str) -> str:
    """The file that is no text and that a line says was removed; empty if it says something else."""
    prefix, suffix = "Binary file ", " removed"
    return line[len(prefix) : -len(suffix)] if line.startswith(prefix) and line.endswith(suffix) else ""


def _patched(text: str, lines: list[str], at: int, path: str) -> tuple[str, int]:
    """The file after its hunks, and the line of the patch behind them."""
    source, out, done = text.splitlines(keepends=True), [], 0
    while at < len(lines) and (hunk := _HUNK.match(lines[at])) is not None:
        olds, news = (int(hunk[place]) if hunk[place] is not None else 1 for place in (2, 4))
        start = int(hunk[1]) - (olds > 0)  # an empty range names the line before it
        out += source[done:start]
        done, at = start, at + 1
        while olds > 0 or news > 0:
            if at >= len(lines):
                raise PatchMismatch(f"{path}: the patch ends within a hunk")
            sign, body = lines[at][:1], f"{lines[at][1:]}\n"
            if at + 1 < len(lines) and lines[at + 1] == _NO_END:
                body = body[:-1]
                at += 1
            at += 1
            if sign in (" ", "-"):
                if done >= len(source) or source[done] != body:
                    raise PatchMismatch(
                        f"{path}:{done + 1}: the patch does not fit; the suite is another than the run's"
                    )
                done, olds = done + 1, olds - 1
            news -= sign in (" ", "+")
            out += [body] if sign in (" ", "+") else []
    return "".join([*out, *source[done:]]), at
