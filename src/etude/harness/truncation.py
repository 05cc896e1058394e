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
    if not head and not tail:
        head, dropped = [_clip(lines[0], max_bytes)], len(lines) - 1
        marker = "[line cut]" if not dropped else f"[line cut, {dropped} lines dropped]"
    else:
        marker = f"[{dropped} lines dropped]" if dropped else "[cut]"
    return Truncated("\n".join([*head, marker, *tail]), dropped, len(lines))


def _kept(lines: list[str], max_lines: int, max_bytes: int, keep: Keep) -> tuple[list[str], list[str]]:
    if keep == "head":
        return _fit(lines, max_lines, max_bytes), []
    if keep == "tail":
        return [], _fit(lines[::-1], max_lines, max_bytes)[::-1]
    head = _fit(lines, (max_lines + 1) // 2, (max_bytes + 1) // 2)
    rest = lines[len(head) :]
    return head, _fit(rest[::-1], max_lines // 2, max_bytes // 2)[::-1]


def _fit(lines: list[str], max_lines: int, max_bytes: int) -> list[str]:
    """The longest run from the start that obeys both limits."""
    kept: list[str] = []
    size = 0
    for line in lines[:max_lines]:
        size += len(line.encode()) + 1
        if size > max_bytes + 1:
            break
        kept.append(line)
    return kept


def _clip(line: str, max_bytes: int) -> str:
    return line.encode()[:max_bytes].decode(errors="ignore")
