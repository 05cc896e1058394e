"""What one owner's journal says, read by anybody: who it is, when it last gave a sign, and what it has not yet taken away.

Promise: a line that death cut short counts as never written, and costs no other line.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from etude.sandbox.cleanup import being, undo
from etude.sandbox.cleanup.being import Being
from etude.sandbox.cleanup.undo import Undo


@dataclass(frozen=True)
class Owner:
    """The process that wrote a journal. `space` is its pid namespace; `what` says for people what it was."""

    being: Being
    boot: str
    space: str
    what: str
    lease_s: float
    beat_s: float

    @property
    def here(self) -> bool:
        """Whether its process numbers mean to us what they meant to it."""
        return self.boot == being.boot_id() and self.space == being.space_id()

    @property
    def foreign(self) -> bool:
        """Of another pid namespace that may still run: nobody here can tell whether it lives."""
        return self.boot == being.boot_id() and not self.here


@dataclass
class Entry:
    """One thing that exists, or was about to when its owner died."""

    id: str
    kind: str
    labels: dict[str, str]
    since: str  # wall time, for people; nothing is decided by it
    undo: list[Undo] = field(default_factory=list)
    stuck: str = ""  # why it could not be removed


@dataclass
class Account:
    path: Path
    owner: Owner
    beat: float  # the owner's last sign, by the machine's monotonic clock
    entries: dict[str, Entry]
    closed: bool = False
    lines: int = 0

    def owner_lives(self) -> bool:
        return not self.closed and self.owner.here and self.owner.being.alive


def read(path: Path) -> Account | None:
    """None where no owner is written: its owner died before it made anything."""
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return None
    account: Account | None = None
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


def _opened(path: Path, head: dict[str, Any]) -> Account | None:
    try:
        who = Being(int(head["pid"]), int(head["start_ticks"]))
        times = float(head["lease_s"]), float(head["beat_s"])
        owner = Owner(who, str(head["boot"]), str(head["space"]), str(head["what"]), *times)
        return Account(path, owner, float(head["at"]), {})
    except (KeyError, ValueError, TypeError):
        return None


def _apply(account: Account, line: dict[str, Any]) -> None:
    match line:
        case {"enter": str(name), "kind": str(kind), "labels": dict(labels), "since": str(since), "undo": list(ways)}:
            account.entries[name] = Entry(name, kind, labels, since, _parsed(ways))
        case {"add": str(name), "undo": list(ways)}:
            if (entry := account.entries.get(name)) is not None:
                entry.undo += _parsed(ways)
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


def _parsed(ways: list[Any]) -> list[Undo]:
    return [undo.parse(way) for way in ways]
