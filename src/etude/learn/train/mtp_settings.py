"""How draft layers are made and kept up with the trunk. Free of torch."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from etude.learn.train.settings import LoopSettings, OptimizerSettings, ScheduleSettings


class MtpSettings(BaseModel):
    """Draft layers: their own stage on a frozen trunk, and their share of the long and SFT stages."""

    model_config = ConfigDict(extra="forbid")

    layers: int = Field(default=1, ge=1, description="Draft layers; each predicts one token further ahead.")
    seed: int = Field(default=0, ge=0, description="Weights of new draft layers.")
    every: int = Field(
        default=4,
        ge=1,
        description="In the long and SFT stages one batch in this number teaches the draft layers too; 1 is every batch.",
    )
    row_tokens: int = Field(default=256, ge=16, description="Length of a packed row; longer documents are cut.")
    batch_rows: int = Field(default=8, ge=1, description="Rows of one optimizer step.")
    packing: bool = Field(
        default=True,
        description="Lay documents end to end in rows; false batches them by like length (faster on CPU if most are short).",
    )
    router_bias_rate: float = Field(
        default=0.01, ge=0, description="Step of the selection bias of the draft layers' routers; 0 freezes it."
    )
    optimizer: OptimizerSettings = Field(default=OptimizerSettings(), description="Optimizer of the MTP stage.")
    schedule: ScheduleSettings = Field(default=ScheduleSettings(), description="Learning rate of the MTP stage.")
    loop: LoopSettings = Field(default=LoopSettings(steps=300), description="Length and safety of the MTP stage.")


class FreshDraftsSettings(BaseModel):
    """Draft layers in RL: after a step they learn the new trunk on the step's own tokens, which leaves the trunk as it is."""

    model_config = ConfigDict(extra="forbid")

    every: int = Field(
        default=0,
        ge=0,
        description="RL steps from one lesson of the draft layers to the next; 0: they stay as they came",
    )
    passes: int = Field(default=1, ge=1, description="Optimizer steps of one lesson, each over the whole batch.")
    optimizer: OptimizerSettings = Field(
        default=OptimizerSettings(muon_lr=0.005, adam_lr=1e-3),
        description="Their own; its learning rates are constant.",
    )
    router_bias_rate: float = Field(
        default=0.01, ge=0, description="Step of the selection bias of the draft layers' routers; 0 freezes it."
    )
    measured_tokens: int = Field(
        default=1024,
        ge=0,
        description="Tokens of the batch whose drafts are measured before and after a lesson; 0: none.",
    )
