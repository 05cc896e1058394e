"""The only place where tool output is cut: by lines first, then bytes, never inside a line.

A marker line says what was dropped and how to get it. No text is cut twice: `show` returns a `FinalText`, and `truncate` refuses one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Keep = Literal["head", "tail", "both"]

# Limit of the tool's lines before or after a cut text (a status, a count). Longer ones would escape the limits.
MAX_FRAME_BYTES = 1000


class FinalText(str):
    """A tool's answer after truncation, whole or cut. It is final: nothing may be cut from it or added to it."""


@dataclass(frozen=True)
class OutputLimits:
    """How much of a text may be shown."""

    max_lines: int
    max_bytes: int


@dataclass(frozen=True)
class TruncationResult:
    """The rest of a text. If anything was dropped, one line at its end, start or middle names the loss."""

    text: str
    dropped_lines: int = 0
    total_lines: int = 0
    cut: bool = False


# From (whole lines kept at the start, lines dropped) to the words that say how to get the rest, or "".
Remedy = Callable[[int, int], str]


def truncate(
    text: str, *, max_lines: int, max_bytes: int, keep: Keep, remedy: Remedy | None = None
) -> TruncationResult:
    """Cut `text` to the limits, the marker line not counted. `head` for files, `tail` for tests, `both` for commands.

    A single line longer than the limit is cut inside, since nothing else would be left of it. Raises ValueError on a text that
    was cut before.
    """
    if isinstance(text, FinalText):
        raise ValueError(f"cut twice: this text went through truncation already: {text[:60]!r}")
    lines = text.split("\n")
    if len(lines) <= max_lines and len(text.encode(errors="replace")) <= max_bytes:
        return TruncationResult(text, 0, len(lines))
    head, tail = _kept(lines, max_lines, max_bytes, keep)
    dropped = len(lines) - len(head) - len(tail)
    kept, loss = len(head), f"{dropped} lines dropped"
    if not head and not tail:
        dropped -= 1
        loss = f"line cut, {dropped} lines dropped" if dropped else "line cut"
        head = [_clip(lines[0], max_bytes)] if keep != "tail" else []
        tail = [_clip(lines[-1], max_bytes)] if keep == "tail" else []
    words = remedy(kept, dropped) if remedy else ""
    marker = f"[{loss}; {words}]" if words else f"[{loss}]"
    return TruncationResult("\n".join([*head, marker, *tail]), dropped, len(lines), cut=True)


def show(
    text: str, limits: OutputLimits, keep: Keep, *, remedy: Remedy | None = None, before: str = "", after: str = ""
) -> FinalText:
    """A finished answer: `before`, the text within its limits, `after`; empty parts are left out.

    Raises ValueError if `before` or `after`, which are not cut, are long themselves.
    """
    for frame in (before, after):
        if len(frame.encode(errors="replace")) > MAX_FRAME_BYTES:
            raise ValueError(f"a frame of {len(frame)} characters belongs into the text: {frame[:60]!r}")
    cut = truncate(text, max_lines=limits.max_lines, max_bytes=limits.max_bytes, keep=keep, remedy=remedy)
    return FinalText("\n".join(part for part in (before, cut.text, after) if part))


def fits(text: str, limits: OutputLimits) -> bool:
    """Whether a text would be shown whole."""
    return text.count("\n") < limits.max_lines and len(text.encode(errors="replace")) <= limits.max_bytes


def _kept(lines: list[str], max_lines: int, max_bytes: int, keep: Keep) -> tuple[list[str], list[str]]:
    room = max_bytes + 1  # every line is counted with its newline, and the last one has none
    if keep == "head":
        return _fit(lines, max_lines, room), []
    if keep == "tail":
        return [], _fit(lines[::-1], max_lines, room)[::-1]
    head = _fit(lines, (max_lines + 1) // 2, room - room // 2)
    rest = lines[len(head) :]
    return head, _fit(rest[::-1], max_lines // 2, room // 2)[::-1]


def _fit(lines: list[str], max_lines: int, room: int) -> list[str]:
    """The longest run from the start that obeys both limits."""
    kept: list[str] = []
    size = 0
    for line in lines[:max_lines]:
        size += len(line.encode(errors="replace")) + 1
        if size > room:
            break
        kept.append(line)
    return kept


def _clip(line: str, max_bytes: int) -> str:
    return line.encode(errors="replace")[:max_bytes].decode(errors="ignore")
