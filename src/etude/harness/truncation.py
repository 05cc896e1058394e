"""The only place where tool output is cut: by lines first, then bytes, never inside a line. Says what was dropped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Keep = Literal["head", "tail", "both"]


@dataclass(frozen=True)
class Truncated:
    """What is left of a text. `text` ends (or starts, or is split) with one line that names the loss, if any."""

    text: str
    dropped_lines: int = 0
    total_lines: int = 0


def truncate(text: str, *, max_lines: int, max_bytes: int, keep: Keep) -> Truncated:
    """Cut `text` to the limits, the marker line not counted. `head` for files, `tail` for tests, `both` for commands.

    A single line longer than the limit is cut inside, since nothing else would be left of it.
    """
    lines = text.split("\n")
    if len(lines) <= max_lines and len(text.encode()) <= max_bytes:
        return Truncated(text, 0, len(lines))
    head, tail = _kept(lines, max_lines, max_bytes, keep)
    dropped = len(lines) - len(head) - len(tail)
    marker = f"[{dropped} lines dropped]"
    if not head and not tail:
        dropped -= 1
        marker = f"[line cut, {dropped} lines dropped]" if dropped else "[line cut]"
        head = [_clip(lines[0], max_bytes)] if keep != "tail" else []
        tail = [_clip(lines[-1], max_bytes)] if keep == "tail" else []
    return Truncated("\n".join([*head, marker, *tail]), dropped, len(lines))


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
        size += len(line.encode()) + 1
        if size > room:
            break
        kept.append(line)
    return kept


def _clip(line: str, max_bytes: int) -> str:
    return line.encode()[:max_bytes].decode(errors="ignore")
