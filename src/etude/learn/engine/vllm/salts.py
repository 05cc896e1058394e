"""Who may share cached tokens in vLLM: its prefix cache knows tokens, not the weights they were computed with, but keeps requests of
different salts apart.

A session goes on with what it has cached under older weights, as in our engine with `swap_cache = "keep"`; a session that begins after a
swap shares with none that began before it.
"""

from __future__ import annotations

from typing import Literal


class Salts:
    """One engine's."""

    def __init__(self, swap_cache: Literal["keep", "recompute"], share_prefix: bool) -> None:
        self._keep, self._share = swap_cache == "keep", share_prefix
        self._began: dict[str, int] = {}

    def of(self, session: str, version: int) -> str:
        """For a turn of `session`, sent while `version` is served."""
        if not self._share:
            return session
        if not self._keep:
            return "all"  # a swap empties the cache
        return f"since {self._began.setdefault(session, version)}"

    def release(self, session: str) -> None:
        self._began.pop(session, None)
