"""How many processes share a model, and in which ways. Torch-free: the recipe reads it.

World size = replicate x shard. Parameters are split over `shard` ranks (FSDP, arXiv 2304.11277) and kept `replicate` times (HSDP). Experts may be
divided whole first: each group of `experts` neighbouring ranks of a shard holds every expert once, and the groups of a shard split each of them.
Rows of a batch are dealt to the ranks, or to groups of `context` neighbouring ranks of a shard that share the tokens of a row.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, model_validator


class ParallelLayout(BaseModel):
    """Numbers of ranks; 1 x 1 is one process."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    replicate: int = Field(default=1, ge=1, description="Copies of the parameters, each split over shard ranks.")
    shard: int = Field(default=1, ge=1, description="Ranks over which parameters, gradients and moments are split.")
    experts: int = Field(
        default=1, ge=1, description="Ranks over which the experts of a layer are divided; divides shard."
    )

    context: int = Field(
        default=1, ge=1, description="Ranks that share the tokens of the same rows, for long documents; divides shard."
    )

    @model_validator(mode="after")
    def _divides(self) -> ParallelLayout:
        if self.shard % self.context:
            raise ValueError(
                f"context = {self.context} does not divide shard = {self.shard}: each group of that many ranks of a shard shares rows"
            )
        if self.shard % self.experts:
            raise ValueError(
                f"experts = {self.experts} does not divide shard = {self.shard}: each group of that many ranks of a shard holds every expert once"
            )
        return self

    @property
    def ranks(self) -> int:
        """The world size."""
        return self.replicate * self.shard

    def require(self, table: str, *, experts: int, own: bool) -> None:
        """Raises ValueError where a stage of the settings `table` can't have this layout: for a model that is not our `own` or has another number
        of experts a layer."""
        if self.ranks == 1:
            return
        if not own:
            raise ValueError(
                f"{table}.parallel has {self.ranks} ranks, and a model that transformers computes can't be split over ranks; set it to one rank"
            )
        try:
            self.require_experts(experts)
        except ValueError as error:
            raise ValueError(f"{table}.parallel: {error}") from error

    def require_experts(self, count: int) -> None:
        """Raises ValueError for a model whose layers have `count` experts each, which this layout can't divide."""
        if self.experts > 1 and (not count or count % self.experts):
            have = f"{count} experts" if count else "no experts"
            raise ValueError(
                f"experts = {self.experts}, and the model's layers have {have}: take a divisor of their number, or 1"
            )
