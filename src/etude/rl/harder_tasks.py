"""Harder tasks in place of those that a run has mastered, as the run sees them. Generators implement it; the pipeline passes it in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from etude.rl.observer import RunObserver
from etude.sandbox.protocol import SandboxPool


class HarderTasks(Protocol):
    """Belongs to one run. Its journal makes a resumed run serve the same tasks again (promise 6)."""

    def serve(self, group: int, scheduled: str) -> str:
        """The id of the task that a group gets, settled at the first call: the scheduled one, or a harder one."""
        ...

    def record_scores(self, group: int, scores: Sequence[float]) -> None:
        """A finished group's outcomes, in [0, 1]. A group recorded twice counts once."""
        ...

    def figures(self, groups: Mapping[int, str]) -> dict[str, float]:
        """Figures of a step over its groups (index to scheduled task), for example the share that got a harder task."""
        ...

    async def close(self) -> None:
        """Stop what is being generated; a resumed run starts it again."""
        ...


class HarderTaskOpener(Protocol):
    """Opens the harder tasks of a run."""

    def open(
        self, journal: Path, scheduled: Sequence[str], above: float, pool: SandboxPool, observer: RunObserver
    ) -> HarderTasks:
        """`scheduled`: ids that are never served as harder ones. `above`: mean score from which a kind of task is mastered. `pool`:
        sandboxes that generators may use."""
        ...
