"""What this user's ledger says, for people: which sandboxes live on this machine, whosever, and what dead owners left."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from etude.ledger.ledger import Ledger, default_folder
from etude.ledger.reaper import Reaped, Reaper


@dataclass(frozen=True)
class Remain:
    """One entry. `state`: lives; left, by an owner that is gone; stuck, where a reaper could not remove it; unknown, where its owner is
    of another pid namespace."""

    id: str
    kind: str
    owner: str
    owner_pid: int
    state: str
    since: str
    labels: dict[str, str]
    detail: str = ""


def folder_of(ledger: str) -> Path:
    """Of the setting `sandbox.ledger`."""
    return Path(ledger) if ledger else default_folder()


def listed(ledger: str = "") -> list[Remain]:
    """Everything that is written down, by owner."""
    found: list[Remain] = []
    for account in Ledger(folder_of(ledger)).accounts():
        owner = account.owner
        for entry in account.entries.values():
            alive = "unknown" if owner.foreign else "lives" if account.owner_lives() else "left"
            state = "stuck" if entry.stuck else alive
            found.append(
                Remain(entry.id, entry.kind, owner.what, owner.being.pid, state, entry.since, entry.labels, entry.stuck)
            )
    return found


def reaped(ledger: str = "") -> list[Reaped]:
    """Undo what dead owners left, now. An owner that lives but gives no sign is left to the pools that have watched it longer."""
    return Reaper(Ledger(folder_of(ledger))).reap()
