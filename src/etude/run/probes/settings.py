"""How much the probes stage measures. Torch-free: the recipe imports it."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class ProbeSettings(BaseModel):
    """The `[probes]` table of a recipe."""

    model_config = ConfigDict(extra="forbid")

    perplexity_bytes: int = Field(
        default=120_000,
        ge=1_000,
        description="held-out code that perplexity is measured on, whole files evenly from all",
    )
    documents: int = Field(default=24, ge=1, description="long held-out documents whose loss by position is measured")
    questions: int = Field(default=20, ge=1, description="lookups of each kind and length, each asked at every depth")
    depths: tuple[float, ...] = Field(default=(0.0, 0.5, 1.0), description="where in the context the answer stands")
    requests: int = Field(default=16, ge=1, description="turns that are decoded plainly and with drafts")
    draft_tokens: int = Field(default=2, ge=1, description="tokens drafted at a time")
    batches: tuple[int, ...] = Field(default=(1, 4), description="requests decoded at once")
    repeats: int = Field(default=3, ge=1, description="passes of each way of decoding; their medians count")
    seed: int = Field(default=0, ge=0, description="draws questions and what is sampled")
