"""Settings of the sampling engine. Torch-free: the recipe imports them."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from etude.learn.engine.vllm_settings import VllmSettings


class EngineSettings(BaseModel):
    """The `[engine]` table of a recipe."""

    model_config = ConfigDict(extra="forbid")

    kind: Literal["etude", "vllm"] = Field(
        default="etude",
        description="what answers in RL: our own engine, or vLLM in a Python of its own (docs/vllm.md); everything else asks ours",
    )
    vllm: VllmSettings = Field(default_factory=VllmSettings, description="vLLM, where it is the engine")
    max_slots: int = Field(default=64, ge=1, description="sessions whose tokens are kept in the cache")
    max_batch: int = Field(default=64, ge=1, description="requests decoded at once")
    max_len: int = Field(
        default=1024,
        ge=2,
        description="longest session in tokens; memory grows with it times slots; left out with another preset than nano: the model's "
        "context window, at most 32,768, and what the memory holds",
    )
    swap_cache: Literal["keep", "recompute"] = Field(
        default="keep", description="what happens to cached tokens when new weights come in"
    )
    share_prefix: bool = Field(default=True, description="sessions that start alike compute their common prompt once")
    seed: int = Field(default=0, ge=0, description="seed of requests that bring none")
    company: int = Field(
        default=0, ge=0, description="with fewer requests than this in flight, decode steps are tick_s apart"
    )
    tick_s: float = Field(
        default=0.0,
        ge=0,
        description="seconds between steps of a thin batch: more requests join it, and the core is free meanwhile",
    )
    draft_tokens: int = Field(
        default=0, ge=0, le=16, description="tokens guessed ahead by the model's draft layers; 0 decodes plainly"
    )
    draft_max_batch: int = Field(
        default=4, ge=1, description="with more requests running than this, plain decoding is quicker and takes over"
    )
    threads: int = Field(default=1, ge=1, description="threads of one matrix product")
    device: Literal["cpu", "cuda"] = Field(
        default="cpu", description="where the model computes; cuda: on one GPU (for speed there, see docs/vllm.md)"
    )
    weights: Literal["exact", "bfloat16", "mxfp8"] = Field(
        default="exact",
        description="bfloat16, mxfp8: what is served is rounded to it, and reckoned with as before, as by an engine of lower precision than "
        "its trainer; for measuring what that does to RL. mxfp8 rounds the matrices of attention, feed-forward layers and experts, bfloat16 all but "
        "the router's selection bias",
    )

    @model_validator(mode="after")
    def _vllm_takes_its_own(self) -> EngineSettings:
        if self.kind != "vllm":
            return self
        if not self.vllm.python:
            raise ValueError(
                'engine.kind = "vllm" without engine.vllm.python: name the Python that has vLLM (docs/vllm.md)'
            )
        for name, none, why in (
            ("draft_tokens", 0, "drafts are for our own engine"),
            ("weights", "exact", "set engine.vllm.dtype instead"),
            ("device", "cpu", "its own build says where it computes"),
            ("company", 0, "the pace of its steps is vLLM's own"),
            ("tick_s", 0.0, "the pace of its steps is vLLM's own"),
        ):
            if (value := getattr(self, name)) != none:
                raise ValueError(f'engine.{name} = {value!r} with engine.kind = "vllm": {why}; set it to {none!r}')
        return self
