"""Engine and trainer as the run places them, with windows to be killed in. Imported in their processes too."""

from __future__ import annotations

from typing import Any

from etude.rl import placement
from killing import points


class EngineProcess(placement.EngineProcess):
    def __init__(self, *arguments: Any, **named: Any) -> None:
        points.install_engine()
        super().__init__(*arguments, **named)


class VllmProcess(placement.VllmProcess):
    def __init__(self, *arguments: Any, **named: Any) -> None:
        points.install_vllm()
        super().__init__(*arguments, **named)


class TrainerProcess(placement.TrainerProcess):
    def __init__(self, *arguments: Any, **named: Any) -> None:
        points.install_trainer()
        super().__init__(*arguments, **named)


def place() -> None:
    """The run starts these from now on."""
    placement.EngineProcess = EngineProcess  # type: ignore[misc]
    placement.VllmProcess = VllmProcess  # type: ignore[misc]
    placement.TrainerProcess = TrainerProcess  # type: ignore[misc]
