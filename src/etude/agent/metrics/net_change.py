"""The change of a session as a whole: its edits, one after another, file by file, without what they took back of each other.

An `edit` entry has no text but the hashes of the lines that it wrote and took away, and where. So a file is followed as a list of lines,
those that no edit ever touched known by their numbers alone; its first and its last state are compared at the end as two
texts would be. Promise: the figures are those of the two texts (`tests/agent/metrics/test_metrics_net_change.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from etude.core.trace.change import Hunk, changed_spans

# A line's hash, or its number in the first state (from 0) where no edit has said what it holds.
Line = str | int


@dataclass
class _Step:
    """What takes one edit back: (start, how many lines stand there now, the lines that stood there), last first."""

    existed: bool
    spans: list[tuple[int, int, list[Line]]] = field(default_factory=list)


class _File:
    def __init__(self, existed: bool) -> None:
        self.existed = self.exists = existed
        self.first: list[Line] = []  # as far as edits have reached
        self.now: list[Line] = []
        self.steps: dict[int, _Step] = {}

    def edit(self, number: int, data: dict[str, Any]) -> None:
        step = self.steps[number] = _Step(self.exists)
        for hunk in reversed([Hunk.from_json(row) for row in data["hunks"]]):
            start, stop = hunk.old_start - 1, hunk.old_start - 1 + hunk.old_lines
            self._reach(stop)
            gone = self.now[start:stop]
            for line, text in zip(gone, hunk.gone, strict=False):
                if isinstance(line, int):
                    self.first[line] = text
            self.now[start:stop] = hunk.lines
            step.spans.append((start, len(hunk.lines), gone))
        self.exists = data["kind"] != "delete"

    def undo(self, number: int) -> None:
        step = self.steps.pop(number)
        for start, count, lines in reversed(step.spans):
            self.now[start : start + count] = lines
        self.exists = step.existed

    def _reach(self, stop: int) -> None:
        """Both states have lines up to here: beyond what was edited, they are the same."""
        for _ in range(stop - len(self.now)):
            self.now.append(len(self.first))
            self.first.append(len(self.first))

    @property
    def spans(self) -> list[tuple[int, int, int, int]]:
        # A line that was taken away once is known by its hash in both states, wherever it occurs again.
        now = [self.first[line] if isinstance(line, int) else line for line in self.now]
        return changed_spans(self.first, now)

    @property
    def changed(self) -> bool:
        return self.existed != self.exists or bool(self.spans)


class NetChange:
    """Give it a session's `edit` and `undo` entries, in order."""

    def __init__(self) -> None:
        self._files: dict[str, _File] = {}
        self._of: dict[int, _File] = {}  # entry -> its file

    def edit(self, number: int, data: dict[str, Any]) -> None:
        """Entry `number`."""
        path = data["path"]
        file = self._files.setdefault(path, _File(existed=data["kind"] != "create"))
        file.edit(number, data)
        self._of[number] = file

    def undo(self, numbers: list[int]) -> None:
        """The edits of these entries were taken back."""
        for number in sorted(numbers, reverse=True):
            if number in self._of:
                self._of.pop(number).undo(number)

    @property
    def paths(self) -> list[str]:
        """Files that differ from what they were, sorted."""
        return sorted(path for path, file in self._files.items() if file.changed)

    def size(self) -> tuple[int, int, int]:
        """Files that differ, lines that came and lines that went."""
        spans = [span for file in self._files.values() for span in file.spans]
        return len(self.paths), sum(d - c for _, _, c, d in spans), sum(b - a for a, b, _, _ in spans)
