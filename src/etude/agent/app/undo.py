"""Undo of the agent's edits: those of the last request, or all. Either all of them are undone or none.

A file that changed since the agent's edit is refused by name, so that no later work is lost. `etude agent --undo` undoes a session
that is not in use.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from etude.agent.app.errors import UsageError
from etude.agent.app.journal import JournalEdit, UndoJournal, digest_of
from etude.agent.app.saved_sessions import find_session
from etude.agent.git_links.home import read_entries
from etude.agent.workspace.local_folder import LocalFolder
from etude.agent.workspace.workspace import Workspace, WorkspaceError
from etude.core.trace.entry import Entry
from etude.core.trace.writer import SessionBusy, SessionWriter
from etude.sandbox.protocol import Operations


class UndoError(UsageError):
    """There is nothing to undo, or a file was changed since the edit."""


@dataclass(frozen=True)
class UndoResult:
    """`data` is the content of the session's `undo` entry."""

    paths: list[str]
    edits: list[int]

    @property
    def data(self) -> dict[str, object]:
        return {"edits": self.edits, "paths": self.paths, "by": "user"}


def last_request(entries: Sequence[Entry]) -> int:
    """The entry of the last request, steering messages not counted; 0 if there is none."""
    requests = [
        entry.id
        for entry in entries
        if entry.type == "message" and entry.data["role"] == "user" and not entry.data.get("summary")
        and entry.data.get("delivery") in (None, "queue")
    ]  # fmt: skip
    return requests[-1] if requests else 0


async def undo_edits(
    journal: UndoJournal, entries: Sequence[Entry], operations: Operations, *, everything: bool = False
) -> UndoResult:
    """Restore the files. Raises UndoError before anything is changed."""
    edits = journal.edits()
    if not edits:
        raise UndoError("the agent has no edits that could be taken back (what shell commands did is not recorded)")
    # The last request that edited anything: later requests may have edited nothing.
    since = 0 if everything else _request_before(edits[-1], entries)
    chosen = [edit for edit in edits if edit.at > since]
    first: dict[str, JournalEdit] = {}
    last: dict[str, JournalEdit] = {}
    for edit in chosen:
        first.setdefault(edit.path, edit)
        last[edit.path] = edit
    workspace = Workspace(operations)
    strange = [path for path in last if not await _has_content(workspace, path, last[path].after)]
    if strange:
        raise UndoError(f"changed since the agent's edit: {', '.join(strange)}; put it back by hand, or by git")
    for path, edit in first.items():
        if last[path].after != edit.before:
            await workspace.restore(path, journal.blob(edit.before))
    journal.mark_undone(chosen)
    known = {number for entry in entries if entry.type == "undo" for number in entry.data["edits"]}
    numbers = [
        e.id for e in entries if e.type == "edit" and e.id > since and e.data["path"] in first and e.id not in known
    ]
    return UndoResult(list(first), numbers)


def _request_before(edit: JournalEdit, entries: Sequence[Entry]) -> int:
    """The request that caused an edit."""
    return last_request([entry for entry in entries if entry.id < edit.at])


async def _has_content(workspace: Workspace, path: str, digest: str | None) -> bool:
    try:
        return digest_of(await workspace.bytes_of(path)) == digest
    except WorkspaceError:
        return False


async def undo_session(named: str, folder: Path, everything: bool) -> UndoResult:
    """Undo in the folder that the session worked in, and record it. Raises UsageError (UndoError where a file has changed)."""
    file, header = find_session(named, folder)
    workspace = Path(header.facts.get("workspace") or "")
    if not header.facts.get("workspace") or not workspace.is_dir():
        raise UsageError(
            f"{header.session_id} worked in {str(workspace)!r}, which isn't there any more: nothing to take back"
        )
    _, entries = read_entries(file)
    try:
        recorder = SessionWriter.resume(file, every="line")
        local = LocalFolder(workspace)
        try:
            done = await undo_edits(UndoJournal(file), entries, local, everything=everything)
        finally:
            await local.kill()
        recorder.append("undo", dict(done.data))
        recorder.close()
    except SessionBusy as error:
        raise UsageError(f"{header.session_id} is in use: say /undo there, or wait until it has ended") from error
    return done
