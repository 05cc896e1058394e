"""A checkpoint from the middle of a stage, for stages that start from a model that is still learning (the draft layers)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Midway:
    """Calls `save` once, after the first step by which `share` of the stage is done.

    The call comes before the loop saves that step, so a kill between the two only makes it save the same again.
    """

    def __init__(self, share: float, save: Callable[[], None]) -> None:
        self._share = share
        self._save = save
        self._saved = False

    def begin(self) -> None:
        self._saved = False

    def due(self, step: int, done: float) -> bool:
        return not self._saved and done >= self._share

    def after(self, step: int, done: float) -> str:
        if self.due(step, done):
            self._save()
            self._saved = True
        return ""

    def state(self) -> dict[str, Any]:
        return {"saved": self._saved}

    def restore(self, state: dict[str, Any]) -> None:
        self._saved = state["saved"]
