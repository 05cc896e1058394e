"""What a bench runs and how it counts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

DISCOVERY_LEVEL = "relapse"  # the exercise level whose winning move no demonstration shows


class BenchSettings(BaseModel):
    """The comparison at the end of a run."""

    model_config = ConfigDict(extra="forbid")

    split: Literal["heldout", "validation"] = Field(
        "heldout", description="whose tasks: settings are chosen on validation, reported figures are of held-out tasks"
    )
    tasks: int = Field(
        128, ge=2, description="tasks, the same for every policy; in the proportions of the exercise levels"
    )
    tasks_per_level_min: int = Field(
        10, ge=1, description="fewest tasks of a level, so that its own row means something; averages are weighted back"
    )
    tasks_discovery_min: int = Field(24, ge=1, description="fewest tasks of the discovery level")
    passes: int = Field(16, ge=1, description="attempts at each task by the SFT and RL checkpoints")
    passes_discovery: int = Field(
        16, ge=1, description="attempts at each task of the discovery level by the SFT and RL checkpoints"
    )
    passes_base: int = Field(2, ge=1, description="attempts at each task by the base checkpoint")
    passes_controls: int = Field(4, ge=1, description="attempts at each task by the two control checkpoints")
    passes_scripted: int = Field(2, ge=1, description="attempts at each task by the expert, nop and cheating agents")
    temperature: float = Field(1.0, gt=0, description="sampling temperature of every checkpoint")
    concurrency: int = Field(64, ge=1, description="attempts in flight")
    keep_sessions: int = Field(
        1, ge=0, description="sessions kept as files of each policy, level and result (solved, failed)"
    )
    resamples: int = Field(2000, ge=200, description="bootstrap resamples behind every interval")
    seed: int = Field(7, description="seed of task choice, sampling and bootstrap")

    def minimum_tasks(self, levels: Iterable[str]) -> dict[str, int]:
        """The fewest tasks of each level."""
        least = {DISCOVERY_LEVEL: self.tasks_discovery_min}
        return {level: least.get(level, self.tasks_per_level_min) for level in levels}
