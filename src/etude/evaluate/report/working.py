"""Whether a run's process is at work: the lock names it, and a process that ends in order empties the lock."""

from __future__ import annotations

import os
from pathlib import Path


def at_work(run: Path) -> bool:
    """Judged by the number in the lock, without taking the lock: a reader must never be in a run's way."""
    lock = run / "lock"
    text = lock.read_text().strip() if lock.is_file() else ""
    return text.isdigit() and os.path.exists(f"/proc/{text}")
