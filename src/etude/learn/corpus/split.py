"""Which projects are held out: a function of the name alone, so every version, fork and distribution of a project is on one side."""

from __future__ import annotations

import hashlib


def held_out(project: str, share: float) -> bool:
    """`project` is `Ref.project`, one name in every source: the same answer in every run and on every machine."""
    return int(hashlib.sha256(f"held out: {project}".encode()).hexdigest()[:8], 16) < share * 2**32
