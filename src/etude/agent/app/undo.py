"""Taking back the agent's edits: of the last request, or all. All of them or none.

A file that is not as the agent left it is refused by name: somebody else changed it since, and that work is not ours to lose.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from etude.agent.app.errors import BadUse
from etude.agent.app.journal import Edit, UndoJournal, digest_of
from etude.agent.app.saved_sessions import find
from etude.agent.git_links.home import read_entries
from etude.agent.workspace.local_folder import LocalFolder
from etude.agent.workspace.workspace import Workspace, WorkspaceError
from etude.core.trace.entry import Entry
from etude.core.trace.writer import SessionBusy, SessionWriter
from etude.sandbox.protocol import Operations


class CantUndo(BadUse):
    """There is nothing to take back, or a file was changed since."""


@dataclass(frozen=True)
class Undone:
    """`data` is what the session's `undo` entry holds."""

    paths: list[str]
    edits: list[int]

    @property
    def data(self) -> dict[str, object]:
        return {"edits": self.edits, "paths": self.paths, "by": "user"}


def last_request(entries: Sequence[Entry]) -> int:
    """The entry of the last request that is not a word in between; 0 where there is none."""
    spoken = [
        entry.id
        for entry in entries
        if entry.type == "message" and entry.data["role"] == "user" and not entry.data.get("summary")
        and entry.data.get("delivery") in (None, "queue")
    ]  # fmt: skip
    return spoken[-1] if spoken else 0


async def undo(
    journal: UndoJournal, entries: Sequence[Entry], operations: Operations, *, everything: bool = False
) -> Undone:
    """Put the files back. Raises CantUndo; then nothing was changed."""
    edits = journal.edits()
    if not edits:
        raise CantUndo("the agent has no edits that could be taken back (what shell commands did is not recorded)")
    # Of the last request that edited anything: the one that undo was called for may have said something since.
    since = 0 if everything else _request_of(edits[-1], entries)
    chosen = [edit for edit in edits if edit.at > since]
    first: dict[str, Edit] = {}
    last: dict[str, Edit] = {}
    for edit in chosen:
        first.setdefault(edit.path, edit)
        last[edit.path] = edit
    workspace = Workspace(operations)
    strange = [path for path in last if not await _is(workspace, path, last[path].after)]
    if strange:
        raise CantUndo(f"changed since the agent's edit: {', '.join(strange)}; put it back by hand, or by git")
    for path, edit in first.items():
        if last[path].after != edit.before:
            await workspace.restore(path, journal.blob(edit.before))
    journal.undone(chosen)
    known = {number for entry in entries if entry.type == "undo" for number in entry.data["edits"]}
    numbers = [
        e.id for e in entries if e.type == "edit" and e.id > since and e.data["path"] in first and e.id not in known
    ]
    return Undone(list(first), numbers)


def _request_of(edit: Edit, entries: Sequence[Entry]) -> int:
    """The request that an edit belongs to."""
    return last_request([entry for entry in entries if entry.id < edit.at])


async def _is(workspace: Workspace, path: str, digest: str | None) -> bool:
    try:
        return digest_of(await workspace.bytes_of(path)) == digest
    except WorkspaceError:
        return False


# --- from taking_back.py: `etude agent --undo`: a session's edits taken back from outside, while nobody is using it.


async def take_back(named: str, folder: Path, everything: bool) -> Undone:
    """Undo in the folder that the session worked in, and record it. Raises BadUse (CantUndo where a file has changed)."""
    file, header = find(named, folder)
    workspace = Path(header.facts.get("workspace") or "")
    if not header.facts.get("workspace") or not workspace.is_dir():
        raise BadUse(
            f"{header.session_id} worked in {str(workspace)!r}, which isn't there any more: nothing to take back"
        )
    _, entries = read_entries(file)
    try:
        recorder = SessionWriter.resume(file, every="line")
        local = LocalFolder(workspace)
        try:
            done = await undo(UndoJournal(file), entries, local, everything=everything)
        finally:
            await local.kill()
        recorder.append("undo", dict(done.data))
        recorder.close()
    except SessionBusy as error:
        raise BadUse(f"{header.session_id} is in use: say /undo there, or wait until it has ended") from error
    return done
