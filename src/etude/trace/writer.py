"""A session on disk: `X.jsonl` (header line, then one entry a line), `X.tokens` and `X.routes` beside it; append-only.

Tokens are written before the line that counts them, so a line on disk always has its tokens, and a kill costs at most the
last turn. `every="end"` writes once, when the session is over: the cheap choice for rollouts, which are worth nothing torn.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO, Literal

from etude.trace.block import pack_routes, pack_tokens
from etude.trace.entry import EntryRoutes, EntryTokens, EntryType, Header
from etude.trace.session import Recorder

# The order in which buffers reach the disk: tokens before the lines that count them.
_SUFFIXES = (".tokens", ".routes", ".jsonl")


class SessionWriter(Recorder):
    """A recorder that also writes. `keep_routes=False` leaves the routes out: they are the bulk and only training reads
    them."""

    def __init__(
        self, path: Path, header: Header, *, every: Literal["turn", "end"] = "turn", keep_routes: bool = True
    ) -> None:
        super().__init__(header)
        if path.suffix != ".jsonl":
            raise ValueError(f"a session file ends in .jsonl, not {path.name!r}")
        if path.exists():
            raise FileExistsError(f"{path} exists; a session is written once, choose another session id")
        self.path = path
        self._every = every
        self._keep_routes = keep_routes
        self._pending: dict[str, bytearray] = {suffix: bytearray() for suffix in _SUFFIXES}
        self._files: dict[str, BinaryIO] = {}
        self._line({"type": "session", **asdict(header)})

    def append(
        self,
        type: EntryType,
        data: dict[str, Any],
        *,
        parent: int | None = None,
        tokens: EntryTokens | None = None,
        routes: EntryRoutes | None = None,
    ) -> int:
        number = super().append(type, data, parent=parent, tokens=tokens, routes=routes)
        row = self.session.entries[number].to_json()
        if tokens is not None:
            row["tokens"] = len(tokens.ids)
            self._pending[".tokens"] += pack_tokens(number, tokens)
        if routes is not None and self._keep_routes:
            self._pending[".routes"] += pack_routes(number, routes)
        self._line(row)
        return number

    def flush(self) -> None:
        if self._every == "turn":
            self._write()

    def close(self) -> None:
        self._write()
        for file in self._files.values():
            file.close()
        self._files.clear()

    def _line(self, row: dict[str, Any]) -> None:
        self._pending[".jsonl"] += json.dumps(row, separators=(",", ":")).encode() + b"\n"

    def _write(self) -> None:
        for suffix, pending in self._pending.items():
            if pending:
                if suffix not in self._files:
                    self._files[suffix] = open(self.path.with_suffix(suffix), "ab", buffering=0)
                self._files[suffix].write(pending)
                pending.clear()
