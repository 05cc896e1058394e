"""Settings of low-rank adapters. Torch-free: the recipe imports them."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

ALL_LINEAR = "all-linear"
# Groups of targets; any other name is a module's name in the checkpoint's family, such as q_proj.
ATTENTION, DENSE, EXPERTS = "attention", "dense", "experts"


class LoraSettings(BaseModel):
    """Low-rank adapters (LoRA, DoRA) that a stage trains instead of the weights; off while `rank` is 0."""

    model_config = ConfigDict(extra="forbid")

    rank: int = Field(default=0, ge=0, description="Rank of the adapters; 0 trains all weights.")
    alpha: float = Field(
        default=32.0, gt=0, description="Scale of the adapters: the change of a weight is alpha / rank * B A."
    )
    rslora: bool = Field(default=False, description="Scale by alpha / sqrt(rank) instead (rsLoRA).")
    dora: bool = Field(default=False, description="Train the length of every row of a weight separately (DoRA).")
    base: Literal["fp32", "bf16"] = Field(
        default="fp32",
        description='Type in which the frozen weights of products are held; "bf16" rounds them, takes half the memory and needs compute = "bf16".',
    )
    seed: int = Field(default=0, ge=0, description="Draws the matrices A; every B begins as 0.")
    targets: Literal["all-linear"] | list[str] = Field(
        default=ALL_LINEAR,
        description="all-linear (attention and dense layers), or a list of attention, dense, experts and names of modules such as q_proj.",
    )

    @model_validator(mode="after")
    def _possible(self) -> LoraSettings:
        if not self.targets:
            raise ValueError('targets is empty; name modules such as q_proj, or set "all-linear"')
        if self.dora and EXPERTS in self.targets:
            raise ValueError(
                "dora = true has no form for stacked experts; take experts out of targets, or set dora = false"
            )
        return self

    def require_compute(self, compute: str, key: str) -> None:
        """Raises ValueError for a base in bf16 whose products are in fp32. `key`: the setting that says in what they are."""
        if self.rank and self.base == "bf16" and compute != "bf16":
            raise ValueError(
                f'lora.base = "bf16" with {key} = "{compute}": every product would keep a copy of its weight in fp32; set {key} = "bf16", or '
                'lora.base = "fp32"'
            )

    @property
    def scale(self) -> float:
        """The factor of B A."""
        return self.alpha / (self.rank**0.5 if self.rslora else self.rank)
