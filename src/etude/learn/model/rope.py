"""Rotary positions with every scaling of published models, equal to transformers' up to a fixed reordering.

A rotation is one complex multiplication per pair. The pairs of the result lie interleaved for both layouts, for queries and
keys alike; a score is a sum over pairs, so their order does not matter. With a partial rotation the other dimensions follow unchanged.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from etude.learn.model.config import ModelConfig
from etude.learn.model.float32_buffers import Float32Buffers
from etude.learn.model.settings import RopeScaling, YarnSettings


def yarn_mscale(factor: float, mscale: float) -> float:
    """Attention temperature for a stretch of `factor` (YaRN section 3.4); 1 without stretch."""
    return 1.0 if factor <= 1 else 0.1 * mscale * math.log(factor) + 1.0


def score_scale(config: ModelConfig) -> float:
    """The factor on q.k: 1/sqrt(width), times YaRN's temperature squared in latent attention."""
    if config.attention == "grouped":
        return (config.score_width or config.head_dim) ** -0.5
    scale = (config.nope_dim + config.rope_dim) ** -0.5
    if config.yarn is not None and config.yarn.mscale_all_dim:
        scale *= yarn_mscale(config.yarn.factor, config.yarn.mscale_all_dim) ** 2
    return scale


def rotation_scale(config: ModelConfig) -> float:
    """The factor on cos and sin of YaRN and LongRoPE; 1 without them."""
    yarn, scaling = config.yarn, config.rope_scaling
    if scaling is not None and scaling.kind == "longrope":
        stretch = scaling.factor
        derived = 1.0 if stretch <= 1 else math.sqrt(1 + math.log(stretch) / math.log(scaling.original_positions))
        return scaling.attention_factor or derived
    if yarn is None:
        return 1.0
    if yarn.attention_factor:
        return yarn.attention_factor
    if yarn.mscale and yarn.mscale_all_dim:
        return yarn_mscale(yarn.factor, yarn.mscale) / yarn_mscale(yarn.factor, yarn.mscale_all_dim)
    return yarn_mscale(yarn.factor, 1.0)


def frequencies(config: ModelConfig) -> Tensor:
    """Radians per position of each pair, (rotary_dim / 2,) fp32."""
    powers = _powers(config.rope_theta, config.rotary_dim)
    if config.yarn is not None:
        return _yarn(config.yarn, powers, config)
    scaling = config.rope_scaling
    if (
        scaling is None or scaling.kind == "dynamic"
    ):  # dynamic changes nothing within the positions that the model claims
        return 1.0 / powers
    if scaling.kind == "linear":
        return 1.0 / powers / scaling.factor
    return _llama3(scaling, powers) if scaling.kind == "llama3" else _longrope(scaling, powers, config)


def _powers(theta: float, dim: int) -> Tensor:
    return theta ** (torch.arange(0, dim, 2).float() / dim)  # (dim/2,)


def _yarn(yarn: YarnSettings, powers: Tensor, config: ModelConfig) -> Tensor:
    dim, theta = config.rotary_dim, config.rope_theta

    def pair_with(rotations: float) -> float:  # the (fractional) pair that turns so often within the original context
        return dim * math.log(yarn.original_positions / (rotations * 2 * math.pi)) / (2 * math.log(theta))

    low, high = pair_with(yarn.beta_fast), pair_with(yarn.beta_slow)
    if yarn.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    # The width of an empty ramp is transformers' own number, so that both give the same step function.
    width = high - low if high != low else 0.001
    stretched = ((torch.arange(dim // 2).float() - low) / width).clamp(0, 1)  # 0 keep, 1 fully stretched
    return (1.0 / (yarn.factor * powers)) * stretched + (1.0 / powers) * (1 - stretched)


def _llama3(scaling: RopeScaling, powers: Tensor) -> Tensor:
    """Llama 3.1: slow frequencies are divided by the factor, fast ones kept, those between interpolated by their rotations."""
    plain = 1.0 / powers
    lengths = 2 * math.pi / plain  # positions a rotation
    slow = scaling.original_positions / scaling.low_freq_factor
    fast = scaling.original_positions / scaling.high_freq_factor
    rotations = scaling.original_positions / lengths
    kept = (rotations - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor)
    between = (1 - kept) * plain / scaling.factor + kept * plain
    scaled = torch.where(lengths > slow, plain / scaling.factor, plain)
    return torch.where((lengths >= fast) & (lengths <= slow), between, scaled)


def _longrope(scaling: RopeScaling, powers: Tensor, config: ModelConfig) -> Tensor:
    """LongRoPE (arXiv 2402.13753). A model that claims more than its original positions takes the long factors for every sequence, as vLLM does;
    transformers takes the short ones until a sequence passes the original length."""
    long = config.max_positions > scaling.original_positions
    return 1.0 / (torch.tensor(scaling.long_factors if long else scaling.short_factors) * powers)


def query_factors(config: ModelConfig) -> Tensor | None:
    """What queries are multiplied by at every position, (P,) fp32; None: nothing. Attention that is trained on short contexts blurs over long ones,
    so its temperature falls in steps of the original context (Llama 4; `llama_4_scaling_beta` of Mistral's configs)."""
    if not config.query_growth or config.yarn is None:
        return None
    contexts = torch.floor(torch.arange(config.context_length).float() / config.yarn.original_positions)
    return 1 + config.query_growth * torch.log(1 + contexts)


class Rotations(NamedTuple):
    """Rotations at the positions of a batch, each complex (N, 1, dim/2): of most layers, and of windowed ones if theirs differ. `growth` (N, 1, 1)
    multiplies queries."""

    full: Tensor
    windowed: Tensor
    growth: Tensor | None = None


class Rope(Float32Buffers):
    """Holds the tables of rotations for all positions, in fp32; looks up and applies them."""

    table: Tensor
    window_table: Tensor | None
    growth: Tensor | None

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.interleaved = config.rope_interleave
        self.free_layers = frozenset(config.rope_free_layers)
        self.window_layers = frozenset(config.window_layers)
        table, window_table = _tables(config)
        self.register_buffer("table", table, persistent=False)
        self.register_buffer("window_table", window_table, persistent=False)
        self.register_buffer("growth", query_factors(config), persistent=False)

    def reaches(self, length: int) -> None:
        """Raises ValueError for a sequence longer than the table."""
        if length > len(self.table):
            raise ValueError(
                f"a sequence of {length} tokens, but the model's positions end at {len(self.table)} (max_position_embeddings, "
                "or what its YaRN reaches): take shorter rows, or stretch the checkpoint (pretrain.long.yarn_factor)"
            )

    def at(self, positions: Tensor) -> Rotations:
        """Rotations at `positions` (N,), to broadcast over heads."""
        full = _look_up(self.table, positions)
        growth = None if self.growth is None else self.growth.index_select(0, positions).view(-1, 1, 1)
        return Rotations(full, full if self.window_table is None else _look_up(self.window_table, positions), growth)

    def of_layer(self, turns: Rotations, layer: int) -> Tensor | None:
        """What turns the queries and keys of a layer; None where nothing does."""
        if layer in self.free_layers:
            return None
        return turns.windowed if layer in self.window_layers else turns.full

    def rotate(self, x: Tensor, turns: Tensor | None) -> Tensor:
        """x (N, heads, width) turned by `turns` (N, 1, dim/2) from `of_layer`; same shape, pairs of the first `dim` numbers interleaved."""
        if turns is None:
            return x
        if (dim := 2 * turns.shape[-1]) == x.shape[-1]:
            return self._rotate(x, turns)
        return torch.cat((self._rotate(x[..., :dim], turns), x[..., dim:]), -1)

    def _rotate(self, x: Tensor, turns: Tensor) -> Tensor:
        half = x.shape[-1] // 2
        if self.interleaved:
            pairs = torch.view_as_complex(_even(x.float()).unflatten(-1, (half, 2)))
        else:
            # Not torch.complex, which keeps both halves for its backward pass.
            pairs = torch.view_as_complex(torch.stack((x[..., :half].float(), x[..., half:].float()), -1))
        return torch.view_as_real(pairs * turns).flatten(-2).to(x.dtype)


def _tables(config: ModelConfig) -> tuple[Tensor, Tensor | None]:
    """cos and sin (P, dim/2, 2) of most layers, and of windowed ones if theirs differ. On the meta device, where models are counted, nothing is
    computed: operations there load torch's compiler, which takes seconds."""
    own = bool(config.window_rope_theta and config.window_layers)
    if torch.get_default_device().type == "meta":
        empty = torch.empty(config.context_length, config.rotary_dim // 2, 2)
        return empty, torch.empty(config.context_length, config.window_rotary_dim // 2, 2) if own else None
    scale = rotation_scale(config)
    local = _table(config, 1.0 / _powers(config.window_rope_theta, config.window_rotary_dim), 1.0) if own else None
    return _table(config, frequencies(config), scale), local


def _table(config: ModelConfig, per_position: Tensor, scale: float) -> Tensor:
    """cos and sin (P, dim/2, 2) for all positions of the model."""
    angles = torch.outer(torch.arange(config.context_length).float(), per_position)
    return torch.stack((angles.cos() * scale, angles.sin() * scale), dim=-1)


def _look_up(table: Tensor, positions: Tensor) -> Tensor:
    return torch.view_as_complex(table.index_select(0, positions)).unsqueeze(1)


def _even(x: Tensor) -> Tensor:
    """Neighbours as pairs: rows that begin at an odd place, behind a part of odd width, are copied."""
    odd = x.storage_offset() % 2 or any(stride % 2 for stride in x.stride()[:-1])
    return x.contiguous() if odd else x
