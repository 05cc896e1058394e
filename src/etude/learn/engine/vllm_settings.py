"""Settings of vLLM as the engine. Torch-free: the recipe imports them."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

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
