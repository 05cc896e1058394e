"""What looks at a stage between its steps: it may leave something behind, and it may stop the stage."""

from __future__ import annotations

from typing import Any, Protocol


class TrainingWatch(Protocol):
    """Its state is plain values, saved with the loop's, so that a resumed stage sees what one without the kill would have seen."""

    def begin(self) -> None:
        """Called before the first step of a stage, not of a resumed one."""
        ...

    def due(self, step: int, done: float) -> bool:
        """Whether `after`, called with the same, looks at the model's weights."""
        ...

    def after(self, step: int, done: float) -> str:
        """Called after every step with the share of the stage that is `done`; returns why the stage has to stop, "" to go on."""
        ...

    def state(self) -> dict[str, Any]: ...
    def restore(self, state: dict[str, Any]) -> None: ...
