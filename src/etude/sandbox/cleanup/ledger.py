"""The folder of journals, one for each owner that lives or left something. Only its user may look into it: what it says is done.

A folder and not one file: owners never wait for each other, and one that is damaged costs no other.
"""

from __future__ import annotations

import os
import stat
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from etude.sandbox.cleanup import journal_state
from etude.sandbox.cleanup.journal import BEAT_S, LEASE_S, Journal
from etude.sandbox.cleanup.journal_state import JournalState
from etude.sandbox.cleanup.process import ProcessIdentity

SUFFIX = ".jsonl"


class CleanupLedger:
    """Raises OSError where the folder can't be made, or isn't this user's alone."""

    def __init__(self, folder: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self.folder, self._clock = folder, clock
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
            raise PermissionError(
                f"{folder} must be a folder that only user {os.geteuid()} writes; chmod 700 it, or choose another"
            )

    @classmethod
    def at(cls, named: str) -> CleanupLedger:
        """In the folder of that name, or this user's own where none is named."""
        return cls(Path(named) if named else default_folder())

    def open(self, what: str, *, lease_s: float = LEASE_S, beat_s: float = BEAT_S) -> Journal:
        path = self.folder / f"{os.getpid()}-{os.urandom(6).hex()}{SUFFIX}"
        return Journal(path, what, lease_s=lease_s, beat_s=beat_s, clock=self._clock)

    def journal_states(self) -> list[JournalState]:
        """Of all owners, living and dead."""
        found = [journal_state.read(path) for path in sorted(self.folder.glob(f"*{SUFFIX}"))]
        return [one for one in found if one is not None]

    def sweep(self) -> None:
        """Remove files without a word in them, whose owner died between making and heading them, and halves of
        copies."""
        for path in [*self.folder.glob(f"*{SUFFIX}"), *self.folder.glob("*.new")]:
            pid = path.name.partition("-")[0]
            if not (pid.isdigit() and ProcessIdentity.of(int(pid))) and journal_state.read(path) is None:
                path.unlink(missing_ok=True)


def default_folder() -> Path:
    """Where this user's state lies; below the temporary folder for a user without a home, such as a service's."""
    state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    nearest = Path(state)
    while not nearest.exists():
        nearest = nearest.parent
    if os.path.isabs(state) and os.access(nearest, os.W_OK):
        return Path(state, "etude", "ledger")
    return Path(tempfile.gettempdir(), f"etude-ledger-{os.geteuid()}")
