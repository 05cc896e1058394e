"""What the report shows."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class ReportSettings(BaseModel):
    """The one-file report of a run."""

    model_config = ConfigDict(extra="forbid")

    rollouts: int = Field(12, ge=0, description="rollouts to read in the report, spread over the training steps")
    title: str = Field("", description="heading of the report; empty: the recipe's name")
    beside: list[str] = Field(
        default_factory=list,
        description="files of other runs' learning curves, drawn dashed beside this run's (form: etude/report/beside.py)",
    )
