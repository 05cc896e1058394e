"""Undoes what dead owners left. Idempotent, safe next to other reapers and living owners. It never touches what no entry names.

An owner is gone when its process is (by start time, of this boot), or closed its journal. One that lives but has given no sign for its
lease and two heartbeats is gone only if this reaper has itself watched it be silent for two heartbeats: a machine that slept, or a clock
that leapt, makes everybody late at once, the reaper included, and must not cost anybody a sandbox.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from etude.sandbox.cleanup import journal_state, process
from etude.sandbox.cleanup.errors import CleanupError
from etude.sandbox.cleanup.journal_state import JournalState, LedgerEntry
from etude.sandbox.cleanup.ledger import CleanupLedger
from etude.sandbox.cleanup.undo import ORDER


@dataclass(frozen=True)
class ReapResult:
    """One entry that was dealt with; `stuck` says why it is still there."""

    id: str
    kind: str
    owner: str
    stuck: str = ""


class Reaper:
    def __init__(self, ledger: CleanupLedger, clock: Callable[[], float] = time.monotonic) -> None:
        self._ledger, self._clock = ledger, clock
        self._silent: dict[Path, tuple[float, float]] = {}  # last sign, and when it was first found too old

    def reap(self) -> list[ReapResult]:
        """Takes as long as what it kills takes to die: call it from a thread."""
        self._ledger.sweep()
        return [
            reaped
            for journal in self._ledger.journal_states()
            if self._is_gone(journal)
            for reaped in self._clean_up(journal.path)
        ]

    def _is_gone(self, journal: JournalState) -> bool:
        owner = journal.owner
        if owner.is_foreign:
            return False
        if not journal.owner_is_alive():
            return True
        now, grace_s = self._clock(), 2 * owner.beat_s
        if now - journal.beat <= owner.lease_s + grace_s:
            self._silent.pop(journal.path, None)
            return False
        beat, since = self._silent.get(journal.path, (None, now))
        if beat != journal.beat:
            since = now
        self._silent[journal.path] = (journal.beat, since)
        return now - since >= grace_s

    def _clean_up(self, path: Path) -> list[ReapResult]:
        """Under the journal's lock: of two reapers one does it."""
        try:
            fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        except FileNotFoundError:
            return []
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            journal = journal_state.read(path)
            if journal is None or os.fstat(fd).st_ino != path.stat().st_ino or not self._is_gone(journal):
                return []  # its owner rewrote it, or gave a sign, meanwhile
            done = [self._undo_entry(fd, journal, entry) for entry in list(journal.entries.values())]
            if not any(one.stuck for one in done) and not journal.owner_is_alive():
                path.unlink(missing_ok=True)
            return done
        except (BlockingIOError, FileNotFoundError):
            return []  # another reaper is at it, or was
        finally:
            os.close(fd)

    def _undo_entry(self, fd: int, journal: JournalState, entry: LedgerEntry) -> ReapResult:
        rebooted = journal.owner.boot != process.boot_id()
        actions = sorted(entry.undo, key=lambda action: ORDER.index(action.kind))
        problems: list[str] = []
        for action in actions:
            if rebooted and not action.outlives_reboot:
                continue
            try:
                action.undo()
            except CleanupError as stuck:
                problems.append(str(stuck))
        why = "; ".join(problems)
        if why != entry.stuck or not why:
            _note(fd, {"stuck": entry.id, "why": why} if why else {"leave": entry.id})
        return ReapResult(entry.id, entry.kind, f"{journal.owner.what} ({journal.owner.process.pid})", why)


def _note(fd: int, line: dict[str, str]) -> None:
    os.write(fd, f"\n{json.dumps(line)}\n".encode())
