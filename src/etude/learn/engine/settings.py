"""Settings of the sampling engine, ours and vLLM. Torch-free: the recipe imports them."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from etude.learn.model.settings import ExpertProducts

# Arguments of vLLM's engine that Etude sets itself, each with the setting that decides it ("" where none does).
OURS = {
    "model": "",
    "tokenizer": "",
    "skip_tokenizer_init": "",
    "worker_extension_cls": "",
    "logprobs_mode": "",
    "enable_prefix_caching": "engine.share_prefix",
    "max_model_len": "engine.max_len",
    "max_num_seqs": "engine.max_batch",
    "seed": "engine.seed",
    "dtype": "engine.vllm.dtype",
    "kv_cache_memory_bytes": "engine.vllm.kv_cache_mib",
    "speculative_config": "",
}


class VllmSettings(BaseModel):
    """The `[engine.vllm]` table of a recipe; read where `engine.kind` is "vllm"."""

    model_config = ConfigDict(extra="forbid")

    python: str = Field(default="", description="the Python that has vLLM, of an environment of its own")
    dtype: Literal["float32", "bfloat16"] = Field(
        default="float32", description="what vLLM holds weights in and reckons with; the trainer stays in float32"
    )
    kv_cache_mib: int = Field(default=256, ge=1, description="memory for cached tokens; takes the place of max_slots")
    arguments: dict[str, Any] = Field(
        default_factory=lambda: {"enforce_eager": True, "block_size": 32},
        description="further arguments of vLLM's engine by their Python names; the defaults compile nothing, so that it starts soon, and "
        "cache tokens in blocks of 32, where CPUs have 128",
    )

    @model_validator(mode="after")
    def _arguments_are_not_ours(self) -> VllmSettings:
        for name in self.arguments:
            if name in OURS:
                remedy = f"set {OURS[name]} instead" if OURS[name] else "leave it out"
                raise ValueError(
                    f"engine.vllm.arguments has {name} = {self.arguments[name]!r}, which Etude decides: {remedy}"
                )
        return self


class EngineSettings(BaseModel):
    """The `[engine]` table of a recipe."""

    model_config = ConfigDict(extra="forbid")

    kind: Literal["etude", "vllm"] = Field(
        default="etude",
        description="what samples in rl, attempts and bench: our own engine, or vLLM in a separate Python (docs/vllm.md)",
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
    compute: Literal["fp32", "bf16"] = Field(
        default="fp32",
        description="bf16: products and cache are bf16, and weights of products are held in it; rl.update.compute has to agree "
        "(docs/memory.md)",
    )
    expert_products: ExpertProducts = Field(
        default="plain",
        description="format of experts' products, emulated: mxfp8 or nvfp4, as rl.update.expert_products (docs/low-precision.md)",
    )
    weights: Literal["exact", "bfloat16", "mxfp8", "nvfp4"] = Field(
        default="exact",
        description="bfloat16, mxfp8, nvfp4: what is served is rounded to it, and reckoned with as before, as by an engine of lower precision than "
        "its trainer; for measuring what that does to RL. mxfp8 and nvfp4 round the matrices of attention, feed-forward layers and experts, bfloat16 "
        "all but the router's selection bias",
    )

    @model_validator(mode="after")
    def _settings_agree(self) -> EngineSettings:
        if self.compute == "bf16" and self.weights != "exact":
            raise ValueError(
                f'engine.weights = "{self.weights}" rounds what an fp32 engine serves, and engine.compute is "bf16": set one of them'
            )
        if self.kind != "vllm":
            return self
        if not self.vllm.python:
            raise ValueError(
                'engine.kind = "vllm" without engine.vllm.python: name the Python that has vLLM (docs/vllm.md)'
            )
        for name, none, why in (
            ("draft_tokens", 0, "drafts are for our own engine"),
            ("weights", "exact", "set engine.vllm.dtype instead"),
            ("compute", "fp32", "set engine.vllm.dtype instead"),
            ("expert_products", "plain", "vLLM has formats of its own"),
            ("device", "cpu", "its own build says where it computes"),
            ("company", 0, "the pace of its steps is vLLM's own"),
            ("tick_s", 0.0, "the pace of its steps is vLLM's own"),
        ):
            if (value := getattr(self, name)) != none:
                raise ValueError(f'engine.{name} = {value!r} with engine.kind = "vllm": {why}; set it to {none!r}')
        return self
