"""Undoes what dead owners left. Idempotent, safe beside other reapers and beside living owners, and never touches what no entry names.

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

from etude.sandbox.cleanup import account, being
from etude.sandbox.cleanup.account import Account, Entry
from etude.sandbox.cleanup.ledger import Ledger
from etude.sandbox.cleanup.stuck import Stuck
from etude.sandbox.cleanup.undo import ORDER


@dataclass(frozen=True)
class Reaped:
    """One entry that was dealt with; `stuck` says why it is still there."""

    id: str
    kind: str
    owner: str
    stuck: str = ""


class Reaper:
    def __init__(self, ledger: Ledger, clock: Callable[[], float] = time.monotonic) -> None:
        self._ledger, self._clock = ledger, clock
        self._silent: dict[Path, tuple[float, float]] = {}  # last sign, and when it was first found too old

    def reap(self) -> list[Reaped]:
        """Takes as long as what it kills takes to die: call it from a thread."""
        self._ledger.sweep()
        return [reaped for found in self._ledger.accounts() if self._gone(found) for reaped in self._bury(found.path)]

    def _gone(self, found: Account) -> bool:
        owner = found.owner
        if owner.foreign:
            return False
        if not found.owner_lives():
            return True
        now, grace_s = self._clock(), 2 * owner.beat_s
        if now - found.beat <= owner.lease_s + grace_s:
            self._silent.pop(found.path, None)
            return False
        beat, since = self._silent.get(found.path, (None, now))
        if beat != found.beat:
            since = now
        self._silent[found.path] = (found.beat, since)
        return now - since >= grace_s

    def _bury(self, path: Path) -> list[Reaped]:
        """Under the journal's lock: of two reapers one does it."""
        try:
            fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        except FileNotFoundError:
            return []
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            found = account.read(path)
            if found is None or os.fstat(fd).st_ino != path.stat().st_ino or not self._gone(found):
                return []  # its owner rewrote it, or gave a sign, meanwhile
            done = [self._end(fd, found, entry) for entry in list(found.entries.values())]
            if not any(one.stuck for one in done) and not found.owner_lives():
                path.unlink(missing_ok=True)
            return done
        except (BlockingIOError, FileNotFoundError):
            return []  # another reaper is at it, or was
        finally:
            os.close(fd)

    def _end(self, fd: int, found: Account, entry: Entry) -> Reaped:
        rebooted = found.owner.boot != being.boot_id()
        ways = sorted(entry.undo, key=lambda way: ORDER.index(way.kind))
        problems: list[str] = []
        for way in ways:
            if rebooted and not way.lasts:
                continue
            try:
                way.undo()
            except Stuck as stuck:
                problems.append(str(stuck))
        why = "; ".join(problems)
        if why != entry.stuck or not why:
            _note(fd, {"stuck": entry.id, "why": why} if why else {"leave": entry.id})
        return Reaped(entry.id, entry.kind, f"{found.owner.what} ({found.owner.being.pid})", why)


def _note(fd: int, line: dict[str, str]) -> None:
    os.write(fd, f"\n{json.dumps(line)}\n".encode())
