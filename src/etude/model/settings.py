"""The model's shape as a person writes it in a recipe. Torch-free: recipes and `--help` read it.

`Architecture` is what a checkpoint fixes (both families behind one set of names); `ModelSettings` adds how a new model is
drawn, or the checkpoint it continues from.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

Family = Literal["deepseek_v3", "qwen3_moe"]

# Fields that mean nothing to the family.
FOREIGN_FIELDS: dict[Family, tuple[str, ...]] = {
    "deepseek_v3": ("kv_heads", "head_dim", "sparse_step", "dense_layers"),
    "qwen3_moe": (
        *("q_lora_rank", "kv_lora_rank", "nope_dim", "rope_dim", "v_dim", "rope_interleave"),
        *("shared_experts", "first_dense", "expert_groups", "groups_per_token", "routed_scale"),
    ),
}


class YarnSettings(BaseModel):
    """YaRN rope scaling (arXiv 2309.00071): stretch positions trained up to `original_positions` by `factor`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    factor: float = Field(4.0, ge=1, description="context is stretched by this factor")
    original_positions: int = Field(512, ge=1, description="context length before stretching")
    beta_fast: float = Field(32.0, gt=0, description="rotations above which a frequency is kept as it is")
    beta_slow: float = Field(1.0, gt=0, description="rotations below which a frequency is fully stretched")
    mscale: float = Field(
        1.0, ge=0, description="attention temperature of the rotated part (0 leaves it to the factor)"
    )
    mscale_all_dim: float = Field(
        1.0, ge=0, description="attention temperature of the whole score (MLA only; 0 is off)"
    )


class Architecture(BaseModel):
    """Everything that fixes the shapes but the vocabulary. Fields that a family does not have are ignored by it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    family: Family = Field("deepseek_v3", description="MLA and sigmoid router, or GQA with QK-norm and softmax router")
    hidden_size: int = Field(128, ge=1, description="width of the residual stream")
    layers: int = Field(4, ge=1, description="number of blocks")
    heads: int = Field(4, ge=1, description="query heads")
    norm_eps: float = Field(1e-6, gt=0, description="epsilon of RMSNorm")
    max_positions: int = Field(2048, ge=1, description="longest context the model claims")
    rope_theta: float = Field(10000.0, gt=0, description="base of the rotary frequencies")
    yarn: YarnSettings | None = Field(None, description="rope scaling; absent means none")

    q_lora_rank: int = Field(0, ge=0, description="deepseek_v3: rank of the query projection, 0 for a full matrix")
    kv_lora_rank: int = Field(64, ge=1, description="deepseek_v3: width of the cached latent")
    nope_dim: int = Field(32, ge=1, description="deepseek_v3: per-head key width without rope")
    rope_dim: int = Field(16, ge=2, multiple_of=2, description="deepseek_v3: key width with rope, shared by the heads")
    v_dim: int = Field(32, ge=1, description="deepseek_v3: per-head value width")
    rope_interleave: bool = Field(True, description="deepseek_v3: rope pairs are neighbours instead of halves")

    kv_heads: int = Field(2, ge=1, description="qwen3_moe: key and value heads")
    head_dim: int = Field(32, ge=2, multiple_of=2, description="qwen3_moe: width of a head")

    dense_intermediate: int = Field(384, ge=1, description="inner width of a dense feed-forward")
    moe_intermediate: int = Field(128, ge=1, description="inner width of one expert")
    experts: int = Field(8, ge=1, description="routed experts per layer")
    experts_per_token: int = Field(2, ge=1, description="experts each token visits")
    norm_topk: bool = Field(True, description="gating weights of a token sum to one before scaling")

    shared_experts: int = Field(1, ge=1, description="deepseek_v3: experts every token visits")
    first_dense: int = Field(1, ge=0, description="deepseek_v3: how many first layers have no experts")
    expert_groups: int = Field(1, ge=1, description="deepseek_v3: groups the experts are split into")
    groups_per_token: int = Field(1, ge=1, description="deepseek_v3: groups a token may choose from")
    routed_scale: float = Field(1.0, gt=0, description="deepseek_v3: factor on the routed experts' output")

    sparse_step: int = Field(1, ge=1, description="qwen3_moe: every n-th layer has experts")
    dense_layers: tuple[int, ...] = Field((0,), description="qwen3_moe: layers without experts")

    @model_validator(mode="after")
    def _fits(self) -> Architecture:
        if self.experts_per_token > self.experts:
            raise ValueError(f"experts_per_token={self.experts_per_token} exceeds experts={self.experts}; lower it")
        if self.family == "qwen3_moe" and self.heads % self.kv_heads:
            raise ValueError(f"heads={self.heads} is not a multiple of kv_heads={self.kv_heads}; change one")
        if self.family == "deepseek_v3":
            self._check_groups()
        return self

    def _check_groups(self) -> None:
        if self.experts % self.expert_groups:
            raise ValueError(f"experts={self.experts} do not split into expert_groups={self.expert_groups}")
        if self.groups_per_token > self.expert_groups:
            raise ValueError(f"groups_per_token={self.groups_per_token} exceeds expert_groups={self.expert_groups}")
        size = self.experts // self.expert_groups
        if self.expert_groups > 1 and size < 2:
            raise ValueError(f"a group holds {size} expert; it is ranked by its best two, so use fewer expert_groups")
        if self.groups_per_token * size < self.experts_per_token:
            raise ValueError(f"{self.groups_per_token} groups of {size} hold fewer than experts_per_token")


class ModelSettings(Architecture):
    """The `[model]` table of a recipe."""

    init: str = Field("", description="checkpoint directory to continue from; empty draws a new model")
    seed: int = Field(0, ge=0, description="seed of a new model's weights")
    init_gain: float = Field(1.0, gt=0, description="matrices are drawn with std init_gain / sqrt(fan in)")
    init_embedding_std: float = Field(0.5, gt=0, description="std of the token embedding")
    init_head_std: float = Field(0.02, gt=0, description="std of the output head; small makes the first loss ln V")
    init_mla_gain: float = Field(1.0, gt=0, description="extra factor on MLA's query and key/value factors")
