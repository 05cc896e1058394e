"""What a stage costs: wall seconds, core-seconds and peak memory of this process and everything it started.

Children that were waited for are in the kernel's account of their parent; those still alive (Ray's processes) are read from
/proc. A process that vanishes without being waited for by anyone in the tree keeps the share that the last sample saw.
The figures are saved while the stage runs, so that a kill loses at most SAVE_EVERY_S of them.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

SAMPLE_EVERY_S = 1.0  # one pass over /proc costs about 5 ms with 300 processes: half a percent of a core
SAVE_EVERY_S = 5.0
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class StageCost:
    """What was spent. `peak_rss_bytes` sums resident memory over the tree, so shared pages count more than once."""

    seconds: float = 0.0
    core_seconds: float = 0.0
    peak_rss_bytes: int = 0

    def __add__(self, other: StageCost) -> StageCost:
        return StageCost(
            self.seconds + other.seconds,
            self.core_seconds + other.core_seconds,
            max(self.peak_rss_bytes, other.peak_rss_bytes),
        )


class Meter:
    """Context manager; `save` is called with the cost so far now and then, and once at the end."""

    def __init__(self, save: Callable[[StageCost], None]) -> None:
        self._save = save
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="meter", daemon=True)
        self._peak_bytes = 0
        self._lost_s = 0.0

    def __enter__(self) -> Meter:
        self._began = time.monotonic()
        self._first_s, self._peak_bytes = tree_usage(os.getpid())
        self._last_s = self._first_s
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        self._sample()
        self._save(self.cost)

    @property
    def cost(self) -> StageCost:
        """Spent so far."""
        core_s = self._last_s - self._first_s + self._lost_s
        return StageCost(round(time.monotonic() - self._began, 3), round(core_s, 3), self._peak_bytes)

    def _watch(self) -> None:
        saved = time.monotonic()
        while not self._stop.wait(SAMPLE_EVERY_S):
            self._sample()
            if time.monotonic() - saved >= SAVE_EVERY_S:
                self._save(self.cost)
                saved = time.monotonic()

    def _sample(self) -> None:
        core_s, rss_bytes = tree_usage(os.getpid())
        if core_s < self._last_s:  # a process went unaccounted: what it had used was used all the same
            self._lost_s += self._last_s - core_s
        self._last_s = core_s
        self._peak_bytes = max(self._peak_bytes, rss_bytes)


def tree_usage(root: int) -> tuple[float, int]:
    """Core-seconds (children that were waited for included) and resident bytes of a process and its descendants."""
    parents: dict[int, int] = {}
    usage: dict[int, tuple[int, int]] = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            # After the command name in parentheses: state, ppid, ...; times are fields 14-17, resident pages 24 (proc(5)).
            fields = Path("/proc", name, "stat").read_bytes().rpartition(b")")[2].split()
        except OSError:  # it ended between the listing and the reading
            continue
        parents[int(name)] = int(fields[1])
        usage[int(name)] = (sum(int(ticks) for ticks in fields[11:15]), int(fields[21]))
    ticks = pages = 0
    for pid in _descendants(root, parents):
        ticks, pages = ticks + usage[pid][0], pages + usage[pid][1]
    return ticks * _TICK_S, pages * _PAGE_BYTES


def _descendants(root: int, parents: dict[int, int]) -> list[int]:
    children: dict[int, list[int]] = {}
    for pid, parent in parents.items():
        children.setdefault(parent, []).append(pid)
    found = [root] if root in parents else []
    for pid in found:  # grows while it is walked
        found += children.get(pid, [])
    return found
