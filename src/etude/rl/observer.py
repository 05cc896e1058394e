"""What a run reports: `RunObserver`, and the one that writes the event log, which the terminal and the report read."""

from __future__ import annotations

from typing import Any, Protocol

from etude.core.events.log import EventLog

STAGE = "rl"  # the stage's name in the event log and in sessions


class RunObserver(Protocol):
    """Receives the reports of a run. Its methods are called on the run's event loop, so they must not block."""

    def note(self, text: str) -> None:
        """One line for the person who watches."""
        ...

    def phase(self, text: str) -> None:
        """What the run does now, where there is no bar to move."""
        ...

    def progress(self, done: int, total: int, **info: Any) -> None:
        """`done` of `total` steps are trained; `info` is shown next to the bar."""
        ...

    def metric(self, step: int, **values: float) -> None:
        """Figures of a step; later figures of the same step replace earlier ones of the same name."""
        ...


class EventLogObserver:
    """Writes to the event log, under a stage's name."""

    def __init__(self, log: EventLog, stage: str = STAGE) -> None:
        self._log, self._stage = log, stage

    def note(self, text: str) -> None:
        self._log.note(self._stage, text)

    def phase(self, text: str) -> None:
        self._log.phase(self._stage, text)

    def progress(self, done: int, total: int, **info: Any) -> None:
        self._log.progress(self._stage, done, total, **info)

    def metric(self, step: int, **values: float) -> None:
        self._log.metric(self._stage, step, **values)
