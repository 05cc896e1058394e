"""What the report shows."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class ReportSettings(BaseModel):
    """The one-file report of a run."""

    model_config = ConfigDict(extra="forbid")

    rollouts: int = Field(
        1000,
        ge=0,
        description="attempts that the one-file report holds in full, of every kind, spread over the run; of all the figures",
    )
    rollout_mb: float = Field(6.0, ge=0, description="room for them in the file, MB; whichever ends first")
    title: str = Field("", description="heading of the report; empty: the recipe's name")
    comparisons: list[str] = Field(
        default_factory=list,
        description="files of other runs' learning curves, drawn dashed next to this run's (form: etude/evaluate/report/comparison_curves.py)",
    )
