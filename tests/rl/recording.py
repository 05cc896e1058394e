"""A run's observer that keeps what it hears."""

from __future__ import annotations

from typing import Any


class RecordingObserver:
    """`observer.RunObserver`: `notes` and `phases` in their order; figures and progress are dropped."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.phases: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)

    def phase(self, text: str) -> None:
        self.phases.append(text)

    def progress(self, done: int, total: int, **info: Any) -> None: ...
    def metric(self, step: int, **values: float) -> None: ...
