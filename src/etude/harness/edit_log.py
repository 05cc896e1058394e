"""Turns what the workspace's journal tells into the session's `edit` entries and the counters' changes.

Give it to the workspace as its journal, and tell it when a call has been answered: a call's edits are recorded behind its
result, merged by file, so that an edit in several steps is one entry and one that came to nothing is none.
"""

from __future__ import annotations

from etude.harness.counters import Counters
from etude.trace.change import Change
from etude.trace.session import Recorder


class EditLog:
    """One session's. Called by the workspace with a path and the file's bytes before and after (None: no file)."""

    def __init__(self, recorder: Recorder, counters: Counters) -> None:
        self._recorder = recorder
        self._counters = counters
        self._running: dict[str, tuple[bytes | None, bytes | None]] = {}

    def __call__(self, path: str, before: bytes | None, after: bytes | None) -> None:
        first = self._running[path][0] if path in self._running else before
        self._running[path] = (first, after)

    def changes(self) -> list[Change]:
        """What the running call changed, for the counters: call this before `Counters.call`. Binary files are left out."""
        found = [Change.of_bytes(path, *sides) for path, sides in self._running.items() if sides[0] != sides[1]]
        changes = [change for change in found if change is not None]
        for change in changes:
            self._counters.changed(change)
        return changes

    def answered(self, call_id: str, changes: list[Change]) -> list[int]:
        """The call is over: its edits become entries, whose ids are returned (an `undo` entry names them)."""
        self._running.clear()
        return [self._recorder.append("edit", change.to_entry(call_id)) for change in changes]
