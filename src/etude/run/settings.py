"""Settings of a run as a whole. Torch-free: the recipe imports them."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class RunSettings(BaseModel):
    """What belongs to no single stage."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(
        default="", description="name of the recipe and of its default run directory; empty: the last file's name"
    )
    sft_checkpoint: str = Field(
        default="", description="checkpoint that rl starts from and bench compares with; empty: the sft stage's own"
    )
    without: list[str] = Field(
        default_factory=list, description="stages to leave out; what follows them reads what they would have read"
    )
    control_share: float = Field(
        default=1.0,
        gt=0,
        le=1,
        description="share of RL's attempts and trainer time that the control rewarded_sft gets; below 1 it proves nothing",
    )
