"""Settings of the targeted feedback (`learn/train/feedback.py`). Torch-free: the recipe imports them."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class FeedbackSettings(BaseModel):
    """A flagged turn is pulled towards what the same weights would have said had they been given a hint."""

    model_config = ConfigDict(extra="forbid")

    weight: float = Field(
        default=0.0, ge=0, description="of the divergence, which is added to the policy loss; 0 turns it off"
    )
    direction: Literal["reverse", "forward"] = Field(
        default="reverse",
        description="reverse: KL(without hint || with hint), as SDPO; forward: KL(with || without), as OPSD",
    )
    top_k: int = Field(
        default=0,
        ge=0,
        description="tokens distinguished at each position, the likeliest with the hint, all others as one; 0: all",
    )
    most: int = Field(
        default=64, ge=1, description="flagged turns of one step, the first of each rollout before its second"
    )
