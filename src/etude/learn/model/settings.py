"""The model's shape as a person writes it in a recipe. Torch-free: recipes and `--help` read it.

`Architecture` holds the settings that a checkpoint fixes (both families behind one set of names); `ModelSettings` adds how a new model is
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


# Far above any published model, and low enough that a config.json of somebody else is refused before memory ends.
MOST_LAYERS, MOST_DRAFT_LAYERS = 1_000, 64
MOST_WIDTH = 1 << 20  # of the stream and of a feed-forward
MOST_HEADS = 1 << 14
MOST_HEAD_WIDTH = 1 << 14
MOST_POSITIONS = 1 << 22
MOST_ROTATIONS = 1 << 28  # positions times the width that rope rotates, a float each: a table of 1 GiB
MOST_VOCABULARY = 1 << 24
MOST_EXPERTS = 65_535  # routes are 16-bit ids below a marker (trace/segment.py)


class YarnSettings(BaseModel):
    """YaRN rope scaling (arXiv 2309.00071): stretch positions trained up to `original_positions` by `factor`."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    factor: float = Field(4.0, ge=1, le=MOST_POSITIONS, description="context is stretched by this factor")
    original_positions: int = Field(512, ge=1, le=MOST_POSITIONS, description="context length before stretching")
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

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    family: Family = Field("deepseek_v3", description="MLA and sigmoid router, or GQA with QK-norm and softmax router")
    hidden_size: int = Field(128, ge=1, le=MOST_WIDTH, description="width of the residual stream")
    layers: int = Field(4, ge=1, le=MOST_LAYERS, description="number of blocks")
    heads: int = Field(4, ge=1, le=MOST_HEADS, description="query heads")
    norm_eps: float = Field(1e-6, gt=0, description="epsilon of RMSNorm")
    max_positions: int = Field(2048, ge=1, le=MOST_POSITIONS, description="longest context the model claims")
    rope_theta: float = Field(10000.0, gt=0, description="base of the rotary frequencies")
    yarn: YarnSettings | None = Field(None, description="rope scaling; absent means none")

    q_lora_rank: int = Field(
        0, ge=0, le=MOST_WIDTH, description="deepseek_v3: rank of the query projection, 0 for a full matrix"
    )
    kv_lora_rank: int = Field(64, ge=1, le=MOST_WIDTH, description="deepseek_v3: width of the cached latent")
    nope_dim: int = Field(32, ge=1, le=MOST_HEAD_WIDTH, description="deepseek_v3: per-head key width without rope")
    rope_dim: int = Field(
        16, ge=2, le=MOST_HEAD_WIDTH, multiple_of=2, description="deepseek_v3: key width with rope, shared by the heads"
    )
    v_dim: int = Field(32, ge=1, le=MOST_HEAD_WIDTH, description="deepseek_v3: per-head value width")
    rope_interleave: bool = Field(True, description="deepseek_v3: rope pairs are neighbours instead of halves")

    kv_heads: int = Field(2, ge=1, le=MOST_HEADS, description="qwen3_moe: key and value heads")
    head_dim: int = Field(32, ge=2, le=MOST_HEAD_WIDTH, multiple_of=2, description="qwen3_moe: width of a head")

    dense_intermediate: int = Field(384, ge=1, le=MOST_WIDTH, description="inner width of a dense feed-forward")
    moe_intermediate: int = Field(128, ge=1, le=MOST_WIDTH, description="inner width of one expert")
    experts: int = Field(8, ge=1, le=MOST_EXPERTS, description="routed experts per layer")
    experts_per_token: int = Field(2, ge=1, le=MOST_EXPERTS, description="experts each token visits")
    norm_topk: bool = Field(True, description="gating weights of a token sum to one before scaling")

    shared_experts: int = Field(1, ge=1, le=MOST_EXPERTS, description="deepseek_v3: experts every token visits")
    first_dense: int = Field(1, ge=0, le=MOST_LAYERS, description="deepseek_v3: how many first layers have no experts")
    expert_groups: int = Field(1, ge=1, description="deepseek_v3: groups the experts are split into")
    groups_per_token: int = Field(1, ge=1, description="deepseek_v3: groups a token may choose from")
    routed_scale: float = Field(1.0, gt=0, description="deepseek_v3: factor on the routed experts' output")

    sparse_step: int = Field(1, ge=1, le=MOST_LAYERS, description="qwen3_moe: every n-th layer has experts")
    dense_layers: tuple[int, ...] = Field((0,), description="qwen3_moe: layers without experts")

    @property
    def context_length(self) -> int:
        """Positions that the model computes: what it claims, or what its YaRN stretches the original ones to, where that is more."""
        stretched = 0 if self.yarn is None else round(self.yarn.factor * self.yarn.original_positions)
        return max(self.max_positions, stretched)

    @property
    def rotary_dim(self) -> int:
        """Width that rope rotates."""
        return self.rope_dim if self.family == "deepseek_v3" else self.head_dim

    @property
    def cache_width(self) -> int:
        """Floats one token holds in one layer of the cache: MLA latent + rope key, or keys + values."""
        if self.family == "deepseek_v3":
            return self.kv_lora_rank + self.rope_dim
        return 2 * self.kv_heads * self.head_dim

    @model_validator(mode="after")
    def _fits(self) -> Architecture:
        if self.context_length > MOST_POSITIONS:
            raise ValueError(
                f"YaRN stretches to {self.context_length:,} positions; at most {MOST_POSITIONS:,} are possible"
            )
        if self.context_length * self.rotary_dim > MOST_ROTATIONS:
            raise ValueError(
                f"{self.context_length:,} positions of {self.rotary_dim:,} rotated numbers each need a rope table of more than "
                f"{MOST_ROTATIONS >> 28} GiB; lower the positions or the width"
            )
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
