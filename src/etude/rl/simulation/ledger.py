"""The resume ledger in memory, so that a hundred thousand rollouts wait for no disk."""

from __future__ import annotations

from typing import Any

from etude.rl.ledger import RlLedger


class LedgerInMemory(RlLedger):
    """Like the file. It outlives its writer, but not the simulation."""

    def __init__(self) -> None:
        self.path = "made-up ledger"  # type: ignore[assignment] - for messages alone
        self.entries: list[dict[str, Any]] = []

    def write(self, kind: str, **values: Any) -> None:
        self.entries.append({"kind": kind, **values})

    def note(self, kind: str, **values: Any) -> None:
        self.entries.append({"kind": kind, **values})

    def close(self) -> None: ...
