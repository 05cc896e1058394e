"""What one owner's journal says, read by anybody: who it is, when it last gave a sign, and what it has not yet taken away.

Promise: a line that death cut short counts as never written, and costs no other line.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from etude.sandbox.cleanup import process, undo
from etude.sandbox.cleanup.process import ProcessIdentity
from etude.sandbox.cleanup.undo import Undo


@dataclass(frozen=True)
class Owner:
    """The process that wrote a journal. `space` is its pid namespace; `what` says for people what it was."""

    process: ProcessIdentity
    boot: str
    space: str
    what: str
    lease_s: float
    beat_s: float

    @property
    def is_local(self) -> bool:
        """Whether its process numbers mean to us what they meant to it."""
        return self.boot == process.boot_id() and self.space == process.pid_namespace_id()

    @property
    def is_foreign(self) -> bool:
        """Of another pid namespace that may still run: from here it can't be seen whether it lives."""
        return self.boot == process.boot_id() and not self.is_local


@dataclass
class LedgerEntry:
    """One thing that exists, or was about to when its owner died."""

    id: str
    kind: str
    labels: dict[str, str]
    since: str  # wall time, for people; nothing is decided by it
    undo: list[Undo] = field(default_factory=list)
    stuck: str = ""  # why it could not be removed


@dataclass
class JournalState:
    path: Path
    owner: Owner
    beat: float  # the owner's last sign, by the machine's monotonic clock
    entries: dict[str, LedgerEntry]
    closed: bool = False
    lines: int = 0

    def owner_is_alive(self) -> bool:
        return not self.closed and self.owner.is_local and self.owner.process.alive


def read(path: Path) -> JournalState | None:
    """None where no owner is written: its owner died before it made anything."""
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return None
    account: JournalState | None = None
    for line in text.split(b"\n"):
        try:
            document = json.loads(line) if line else None
        except (ValueError, RecursionError):
            continue  # cut short: what it announced was not made
        if not isinstance(document, dict):
            continue
        if account is None:
            account = _opened(path, document)
            continue
        account.lines += 1
        _apply(account, document)
    return account


def _opened(path: Path, head: dict[str, Any]) -> JournalState | None:
    try:
        who = ProcessIdentity(int(head["pid"]), int(head["start_ticks"]))
        times = float(head["lease_s"]), float(head["beat_s"])
        owner = Owner(who, str(head["boot"]), str(head["space"]), str(head["what"]), *times)
        return JournalState(path, owner, float(head["at"]), {})
    except (KeyError, ValueError, TypeError):
        return None


def _apply(account: JournalState, line: dict[str, Any]) -> None:
    match line:
        case {
            "enter": str(name),
            "kind": str(kind),
            "labels": dict(labels),
            "since": str(since),
            "undo": list(actions),
        }:
            account.entries[name] = LedgerEntry(name, kind, labels, since, _parsed(actions))
        case {"add": str(name), "undo": list(actions)}:
            if (entry := account.entries.get(name)) is not None:
                entry.undo += _parsed(actions)
        case {"leave": str(name)}:
            account.entries.pop(name, None)
        case {"stuck": str(name), "why": str(why)}:
            if (entry := account.entries.get(name)) is not None:
                entry.stuck = why
        case {"beat": int() | float() as at}:
            account.beat = float(at)
        case {"closed": True}:
            account.closed = True
        case _:
            return  # a newer version's line: not ours to judge


def _parsed(actions: list[Any]) -> list[Undo]:
    return [undo.parse(action) for action in actions]
