"""`etude agent --undo`: a session's edits taken back from outside, while nobody is using it."""

from __future__ import annotations

from pathlib import Path

from etude.agent.app.errors import BadUse
from etude.agent.app.journal import UndoJournal
from etude.agent.app.past import find
from etude.agent.app.undo import Undone, undo
from etude.agent.git_links.home import read_entries
from etude.agent.workspace.local_folder import LocalFolder
from etude.core.trace.writer import SessionBusy, SessionWriter


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
