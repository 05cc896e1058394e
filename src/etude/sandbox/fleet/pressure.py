"""How much work waits on this machine, 0 to 1: the kernel's own pressure figures where it keeps them, else load and free memory."""

from __future__ import annotations

import os
from pathlib import Path

_SCARCE = 0.2  # without pressure figures: memory counts as pressed once less than this share is free


def read() -> tuple[float, float]:
    """Of CPU and of memory."""
    return cpu(), memory()


def cpu() -> float:
    found = _stalled("cpu")
    if found is not None:
        return found
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    return max(0.0, 1 - cores / load) if load > 0 else 0.0  # of `load` that want to run, `cores` do


def memory() -> float:
    found = _stalled("memory")
    if found is not None:
        return found
    try:
        lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
        free = int(lines["MemAvailable"].split()[0]) / int(lines["MemTotal"].split()[0])
    except (OSError, KeyError):
        return 0.0  # a host that can't say is placed by what it has promised alone
    return max(0.0, 1 - free / _SCARCE)


def _stalled(what: str, folder: Path = Path("/proc/pressure")) -> float | None:
    """The share of the last ten seconds in which some work waited; None where the kernel doesn't count (it may refuse at the read)."""
    try:
        some = (folder / what).read_text().splitlines()[0]
    except (OSError, IndexError):
        return None
    return float(some.split("avg10=")[1].split()[0]) / 100
