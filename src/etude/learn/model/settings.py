"""The model's shape as a person writes it in a recipe. Torch-free: recipes and `--help` read it.

`Architecture` holds the settings that a checkpoint fixes (all families behind one set of names); `ModelSettings` adds how a new model is
drawn, or the checkpoint it continues from.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from etude.learn.model.families import FAMILIES, ModelFamily

# Format of the products of experts (`expert_products.py`).
ExpertProducts = Literal["plain", "mxfp8", "nvfp4"]


def _known_family(name: str) -> str:
    if name not in FAMILIES:
        raise ValueError(f"family is {name!r}; the model code has {', '.join(sorted(FAMILIES))}")
    return name


# Fields that mean nothing without the part of the model that they describe.
LATENT_FIELDS = ("q_lora_rank", "kv_lora_rank", "nope_dim", "rope_dim", "v_dim")
GROUPED_FIELDS = ("kv_heads", "head_dim")
EXPERT_FIELDS = (
    *("moe_intermediate", "experts_per_token", "norm_topk", "shared_experts", "shared_intermediate", "first_dense"),
    *("expert_groups", "groups_per_token", "routed_scale", "sparse_step", "dense_layers"),
)

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
    attention_factor: float = Field(0.0, ge=0, description="factor on cos and sin; 0 derives it from the temperatures")
    truncate: bool = Field(True, description="the bounds of the stretched frequencies are rounded to whole pairs")


def _with_tuples(given: dict[str, Any]) -> dict[str, Any]:
    """Lists as tuples: behind a validator of the whole, strict rules no longer take JSON's lists for them."""
    inner = {name: _with_tuples(value) for name, value in given.items() if isinstance(value, dict)}
    return given | inner | {name: tuple(value) for name, value in given.items() if isinstance(value, list)}


class RopeScaling(BaseModel):
    """How a published checkpoint scales its rotary frequencies, other than by YaRN. Which fields count depends on `kind`."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    kind: Literal["linear", "dynamic", "llama3", "longrope"] = Field(
        "linear", description="as rope_type in config.json"
    )
    factor: float = Field(1.0, ge=1, le=MOST_POSITIONS, description="context is stretched by this factor")
    original_positions: int = Field(0, ge=0, le=MOST_POSITIONS, description="llama3, longrope: context before")
    low_freq_factor: float = Field(1.0, gt=0, description="llama3: rotations below which a frequency is stretched")
    high_freq_factor: float = Field(4.0, gt=0, description="llama3: rotations above which a frequency is kept")
    short_factors: tuple[float, ...] = Field(
        (), description="longrope: a divisor a frequency, up to the original context"
    )
    long_factors: tuple[float, ...] = Field((), description="longrope: a divisor a frequency, beyond it")
    attention_factor: float = Field(0.0, ge=0, description="longrope: factor on cos and sin; 0 derives it")


class Architecture(BaseModel):
    """Everything that fixes the shapes but the vocabulary, and every switch of the decoder. What a family fixes (`families.py`) is filled in."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
    new: ClassVar[bool] = True  # whether the family's defaults for a new model apply

    family: Annotated[str, AfterValidator(_known_family)] = Field(
        "deepseek_v3",
        description="whose checkpoints it reads and writes: the model_type of config.json (docs/models.md)",
    )
    hidden_size: int = Field(128, ge=1, le=MOST_WIDTH, description="width of the residual stream")
    layers: int = Field(4, ge=1, le=MOST_LAYERS, description="number of blocks")
    heads: int = Field(4, ge=1, le=MOST_HEADS, description="query heads")
    norm_eps: float = Field(1e-6, gt=0, description="epsilon of RMSNorm")
    norm_place: Literal["before", "after", "both"] = Field(
        "before", description="where attention and feed-forward are normed: their input, their output, or both"
    )
    norm_offset: bool = Field(False, description="norms multiply by one plus their weight")
    tied: bool = Field(False, description="the output head is the token embedding")
    embed_scale: bool = Field(False, description="token embeddings are multiplied by the square root of hidden_size")
    activation: Literal["silu", "gelu_tanh", "clamped_swiglu"] = Field(
        "silu", description="gate of the feed-forward layers; clamped_swiglu is that of gpt-oss"
    )
    feed_bias: bool = Field(False, description="dense feed-forward layers have biases")
    max_positions: int = Field(2048, ge=1, le=MOST_POSITIONS, description="longest context the model claims")
    rope_theta: float = Field(10000.0, gt=0, description="base of the rotary frequencies")
    yarn: YarnSettings | None = Field(None, description="rope scaling; absent means none")
    rope_scaling: RopeScaling | None = Field(None, description="rope scaling of another kind, of published checkpoints")
    rope_interleave: bool = Field(False, description="rope pairs are neighbours instead of halves")
    rope_free_layers: tuple[int, ...] = Field((), description="layers whose queries and keys are not rotated")
    query_growth: float = Field(
        0.0,
        ge=0,
        description="queries are multiplied by 1 + this * ln(1 + floor(position / yarn.original_positions)); 0: not",
    )

    attention: Literal["latent", "grouped"] = Field(
        "latent", description="multi-head latent or grouped-query attention"
    )
    q_lora_rank: int = Field(
        0, ge=0, le=MOST_WIDTH, description="latent: rank of the query projection, 0 for a full matrix"
    )
    kv_lora_rank: int = Field(64, ge=1, le=MOST_WIDTH, description="latent: width of the cached latent")
    nope_dim: int = Field(32, ge=1, le=MOST_HEAD_WIDTH, description="latent: per-head key width without rope")
    rope_dim: int = Field(
        16, ge=2, le=MOST_HEAD_WIDTH, multiple_of=2, description="latent: key width with rope, shared by the heads"
    )
    v_dim: int = Field(32, ge=1, le=MOST_HEAD_WIDTH, description="latent: per-head value width")

    kv_heads: int = Field(2, ge=1, le=MOST_HEADS, description="grouped: key and value heads")
    layer_heads: tuple[Annotated[int, Field(ge=1, le=MOST_HEADS)], ...] = Field(
        (), description="grouped: query heads of each layer where they differ; empty: heads in every layer"
    )
    head_dim: int = Field(32, ge=2, le=MOST_HEAD_WIDTH, multiple_of=2, description="grouped: width of a head")
    qk_norm: Literal["none", "head", "layer"] = Field(
        "none", description="grouped: queries and keys are normed per head, over all heads together, or not"
    )
    qkv_bias: bool = Field(False, description="grouped: queries, keys and values have biases")
    out_bias: bool = Field(False, description="grouped: the output projection has a bias")
    partial_rotary: float = Field(1.0, gt=0, le=1, description="grouped: share of a head's width that rope rotates")
    score_width: int = Field(0, ge=0, description="grouped: scores are divided by the root of this; 0: of head_dim")
    window: int = Field(0, ge=0, le=MOST_POSITIONS, description="grouped: positions that a windowed layer sees")
    window_layers: tuple[int, ...] = Field((), description="grouped: layers that see only the last `window` positions")
    window_rope_theta: float = Field(
        0.0, ge=0, description="rope base of windowed layers, which then have no rope scaling; 0: as the other layers"
    )
    window_partial_rotary: float = Field(
        0.0,
        ge=0,
        le=1,
        description="share of a head's width that rope rotates in windowed layers; 0: as in the other layers",
    )
    attention_gate: Literal["none", "head", "element"] = Field(
        "none",
        description="grouped: softplus of a projection of the layer's input scales its output, by head or by element",
    )
    sinks: bool = Field(False, description="grouped: each head has a learned score that takes part in the softmax")

    dense_intermediate: int = Field(384, ge=1, le=MOST_WIDTH, description="inner width of a dense feed-forward")
    experts: int = Field(8, ge=0, le=MOST_EXPERTS, description="routed experts per layer; 0: all layers are dense")
    moe_intermediate: int = Field(128, ge=1, le=MOST_WIDTH, description="inner width of one expert")
    experts_per_token: int = Field(2, ge=1, le=MOST_EXPERTS, description="experts each token visits")
    router_scoring: Literal["sigmoid", "softmax"] = Field("sigmoid", description="what makes scores of router logits")
    selection_bias: bool = Field(True, description="a bias that balances the load changes the choice of experts")
    router_bias: bool = Field(False, description="router logits have a trained bias")
    norm_topk: bool = Field(True, description="gating weights of a token sum to one before scaling")
    expert_bias: bool = Field(False, description="experts have biases")
    shared_experts: int = Field(0, ge=0, le=MOST_EXPERTS, description="experts every token visits")
    shared_intermediate: int = Field(
        0, ge=0, le=MOST_WIDTH, description="inner width of the shared experts together; 0: moe_intermediate each"
    )
    shared_gate: bool = Field(False, description="a gate per token scales the shared experts' output")
    first_dense: int = Field(0, ge=0, le=MOST_LAYERS, description="how many first layers have no experts")
    sparse_step: int = Field(1, ge=1, le=MOST_LAYERS, description="every n-th layer has experts")
    dense_layers: tuple[int, ...] = Field((), description="further layers without experts")
    expert_groups: int = Field(1, ge=1, description="groups the experts are split into")
    groups_per_token: int = Field(1, ge=1, description="groups a token may choose from")
    group_rank: Literal["best_two", "best"] = Field(
        "best_two", description="a group's rank: its best scores' sum or best"
    )
    routed_scale: float = Field(1.0, gt=0, description="factor on the routed experts' output")

    @model_validator(mode="before")
    @classmethod
    def _of_the_family(cls, given: Any) -> Any:
        """Fills in what the family fixes and what a new model of it starts with. Raises ValueError for a contradiction."""
        if not isinstance(given, dict):
            return given
        family = FAMILIES.get(given.get("family", cls.model_fields["family"].default))
        if family is None:
            return given
        for name, value in family.switches.items():
            if name in given and given[name] != value:
                raise ValueError(f"{name} is {given[name]!r}, and a model of this family has {value!r}; leave it out")
        return {**(family.starts if cls.new else {}), **_with_tuples(given), **family.switches}

    @property
    def context_length(self) -> int:
        """Positions that the model computes: what it claims, or what its YaRN stretches the original ones to, where that is more."""
        stretched = 0 if self.yarn is None else round(self.yarn.factor * self.yarn.original_positions)
        return max(self.max_positions, stretched)

    @property
    def rotary_dim(self) -> int:
        """Width that rope rotates."""
        return self.rope_dim if self.attention == "latent" else int(self.head_dim * self.partial_rotary)

    @property
    def window_rotary_dim(self) -> int:
        """Width that rope rotates in windowed layers."""
        return int(self.head_dim * self.window_partial_rotary) if self.window_partial_rotary else self.rotary_dim

    @property
    def cache_width(self) -> int:
        """Floats one token holds in one layer of the cache: MLA latent + rope key, or keys + values."""
        if self.attention == "latent":
            return self.kv_lora_rank + self.rope_dim
        return 2 * self.kv_heads * self.head_dim

    @property
    def shared_width(self) -> int:
        """Inner width of the shared experts together; 0 without."""
        return self.shared_intermediate or self.shared_experts * self.moe_intermediate

    @property
    def unused_fields(self) -> tuple[str, ...]:
        """Fields that describe a part which the model doesn't have."""
        foreign = GROUPED_FIELDS if self.attention == "latent" else LATENT_FIELDS
        windows = () if self.window_layers else ("window", "window_rope_theta", "window_partial_rotary")
        return (*foreign, *windows, *(() if self.experts else EXPERT_FIELDS))

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
        if self.query_growth and self.yarn is None:
            raise ValueError(
                f"query_growth={self.query_growth} counts in original contexts of yarn, and there is none; set yarn"
            )
        if self.attention == "grouped":
            self._check_heads()
        if self.experts:
            self._check_experts()
        return self

    def _check_heads(self) -> None:
        if self.layer_heads and len(self.layer_heads) != self.layers:
            raise ValueError(f"layer_heads has {len(self.layer_heads)} entries, and the model {self.layers} layers")
        for heads in {self.heads, *self.layer_heads}:
            if heads % self.kv_heads:
                raise ValueError(f"heads={heads} is not a multiple of kv_heads={self.kv_heads}; change one")
        for name, width in (("partial_rotary", self.rotary_dim), ("window_partial_rotary", self.window_rotary_dim)):
            if width < 2 or width % 2:
                share = getattr(self, name)
                raise ValueError(
                    f"{name}={share} of head_dim={self.head_dim} rotates {width} numbers; rope needs an even number"
                )
        if self.window_layers and not self.window:
            raise ValueError(
                f"window_layers={list(self.window_layers)} have no window; set window to a number of positions"
            )
        if self.yarn is not None and self.rope_scaling is not None:
            raise ValueError(f"yarn and rope_scaling={self.rope_scaling.kind!r} exclude each other; leave one out")

    def _check_experts(self) -> None:
        if self.experts_per_token > self.experts:
            raise ValueError(f"experts_per_token={self.experts_per_token} exceeds experts={self.experts}; lower it")
        if self.experts % self.expert_groups:
            raise ValueError(f"experts={self.experts} do not split into expert_groups={self.expert_groups}")
        if self.groups_per_token > self.expert_groups:
            raise ValueError(f"groups_per_token={self.groups_per_token} exceeds expert_groups={self.expert_groups}")
        size = self.experts // self.expert_groups
        if self.expert_groups > 1 and size < 2 and self.group_rank == "best_two":
            raise ValueError(f"a group holds {size} expert; it is ranked by its best two, so use fewer expert_groups")
        if self.groups_per_token * size < self.experts_per_token:
            raise ValueError(f"{self.groups_per_token} groups of {size} hold fewer than experts_per_token")

    @property
    def of_family(self) -> ModelFamily:
        """The entry of the table of families."""
        return FAMILIES[self.family]


Impl = Literal["auto", "etude", "transformers"]


class ModelSettings(Architecture):
    """The `[model]` table of a recipe."""

    impl: Impl = Field(
        "auto",
        description="whose code computes the checkpoint init: etude, ours; transformers, its class of any causal LM; auto: ours where the model "
        "type is one of ours (docs/models.md)",
    )

    init: str = Field(
        "", description="checkpoint to continue from: a directory or a hub name (docs/hub.md); empty draws a new model"
    )
    seed: int = Field(0, ge=0, description="seed of a new model's weights")
    init_gain: float = Field(1.0, gt=0, description="matrices are drawn with std init_gain / sqrt(fan in)")
    init_embedding_std: float = Field(0.5, gt=0, description="std of the token embedding")
    init_head_std: float = Field(0.02, gt=0, description="std of the output head; small makes the first loss ln V")
    init_mla_gain: float = Field(1.0, gt=0, description="extra factor on MLA's query and key/value factors")
