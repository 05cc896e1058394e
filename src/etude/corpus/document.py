"""One piece of text with its origin. The hold-out is a function of the text alone, so no run can leak it into another."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class Document:
    """`source` is "stdlib", "exercise" or "folder:<name>"; `name` is unique inside its source."""

    text: str
    source: str
    name: str

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the text, hexadecimal."""
        return hashlib.sha256(self.text.encode("utf-8")).hexdigest()

    @property
    def byte_count(self) -> int:
        return len(self.text.encode("utf-8"))

    def held_out(self, share: float) -> bool:
        """Whether this text belongs to the evaluation: the same answer on every machine and for every order."""
        return int(self.digest[:8], 16) < share * 2**32

    def rank(self, seed: int) -> str:
        """Sort key of the shuffled order: stable when other documents come or go."""
        return hashlib.sha256(f"{seed}:{self.source}:{self.name}".encode()).hexdigest()
