"""Turns what the workspace's journal tells into the session's `edit` entries.

Give it to the workspace as its journal. Calls may run side by side: each names itself in its own task (`begin`), and what is
written there is its own. When a call is answered its edits are recorded behind its result, merged by file: an edit in several
steps is one entry, one that came to nothing is none.

    log.begin(call.id)                          in the task that runs the call
    result = await tool.run(...)
    changes = log.changes(call.id)
    (the answer is recorded)
    log.record_changes(call.id, changes)
"""

from __future__ import annotations

from contextvars import ContextVar

from etude.core.trace.change import TextChange
from etude.core.trace.session import Recorder

Sides = tuple[bytes | None, bytes | None]


class EditLog:
    """One session's. Called by the workspace with a path and the file's bytes before and after (None: no file)."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._call: ContextVar[str] = ContextVar("call", default="")
        self._files: dict[str, dict[str, Sides]] = {}  # call -> path -> first text, last text

    def begin(self, call_id: str) -> None:
        """What this task and those it starts write from now on belongs to this call."""
        self._call.set(call_id)

    def __call__(self, path: str, before: bytes | None, after: bytes | None) -> None:
        files = self._files.setdefault(self._call.get(), {})
        first = files[path][0] if path in files else before
        files[path] = (first, after)

    def changes(self, call_id: str) -> list[TextChange]:
        """What a call changed. Binary files are left out: they have no lines."""
        sides = self._files.pop(call_id, {})
        found = [TextChange.of_bytes(path, before, after) for path, (before, after) in sides.items() if before != after]
        return [change for change in found if change is not None]

    def record_changes(self, call_id: str, changes: list[TextChange]) -> list[int]:
        """Record a call's changes; the ids of the entries (an `undo` entry names them)."""
        return [self._recorder.append("edit", change.to_entry(call_id)) for change in changes]
