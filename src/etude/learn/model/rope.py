"""Rotary positions, with YaRN stretching (arXiv 2309.00071), equal to transformers' up to a fixed reordering.

A rotation is one complex multiplication per pair. The pairs of the result lie interleaved for both layouts, for queries and
keys alike; a score is a sum over pairs, so their order does not matter.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from etude.learn.model.config import ModelConfig
from etude.learn.model.float32_buffers import Float32Buffers
from etude.learn.model.settings import YarnSettings


def yarn_mscale(factor: float, mscale: float) -> float:
    """Attention temperature for a stretch of `factor` (YaRN section 3.4); 1 without stretch."""
    return 1.0 if factor <= 1 else 0.1 * mscale * math.log(factor) + 1.0


def score_scale(config: ModelConfig) -> float:
    """The factor on q.k: 1/sqrt(width), times YaRN's temperature squared in the DeepSeek family."""
    if config.family == "qwen3_moe":
        return config.head_dim**-0.5
    scale = (config.nope_dim + config.rope_dim) ** -0.5
    if config.yarn is not None and config.yarn.mscale_all_dim:
        scale *= yarn_mscale(config.yarn.factor, config.yarn.mscale_all_dim) ** 2
    return scale


def rotation_scale(yarn: YarnSettings | None) -> float:
    """YaRN's factor on cos and sin; 1 without scaling."""
    if yarn is None:
        return 1.0
    if yarn.mscale and yarn.mscale_all_dim:
        return yarn_mscale(yarn.factor, yarn.mscale) / yarn_mscale(yarn.factor, yarn.mscale_all_dim)
    return yarn_mscale(yarn.factor, 1.0)


def frequencies(config: ModelConfig) -> Tensor:
    """Radians per position of each pair, (rotary_dim / 2,) fp32."""
    dim, theta, yarn = config.rotary_dim, config.rope_theta, config.yarn
    powers = theta ** (torch.arange(0, dim, 2).float() / dim)  # (dim/2,)
    if yarn is None:
        return 1.0 / powers

    def pair_with(rotations: float) -> float:  # the (fractional) pair that turns so often within the original context
        return dim * math.log(yarn.original_positions / (rotations * 2 * math.pi)) / (2 * math.log(theta))

    low = max(math.floor(pair_with(yarn.beta_fast)), 0)
    high = min(math.ceil(pair_with(yarn.beta_slow)), dim - 1)
    # The width of an empty ramp is transformers' own number, so that both give the same step function.
    width = high - low if high != low else 0.001
    stretched = ((torch.arange(dim // 2).float() - low) / width).clamp(0, 1)  # 0 keep, 1 fully stretched
    return (1.0 / (yarn.factor * powers)) * stretched + (1.0 / powers) * (1 - stretched)


class Rope(Float32Buffers):
    """Holds the table of rotations for all positions, in fp32; looks up and applies them."""

    table: Tensor

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.interleaved = config.family == "deepseek_v3" and config.rope_interleave
        angles = torch.outer(torch.arange(config.context_length).float(), frequencies(config))  # (P, dim/2)
        scale = rotation_scale(config.yarn)
        turns = torch.stack((angles.cos() * scale, angles.sin() * scale), dim=-1)  # (P, dim/2, 2)
        self.register_buffer("table", turns, persistent=False)

    def reaches(self, length: int) -> None:
        """Raises ValueError for a sequence longer than the table."""
        if length > len(self.table):
            raise ValueError(
                f"a sequence of {length} tokens, but the model's positions end at {len(self.table)} (max_position_embeddings, "
                "or what its YaRN reaches): take shorter rows, or stretch the checkpoint (pretrain.long.yarn_factor)"
            )

    def at(self, positions: Tensor) -> Tensor:
        """Rotations at `positions` (N,): complex (N, 1, dim/2), to broadcast over heads."""
        return torch.view_as_complex(self.table.index_select(0, positions)).unsqueeze(1)

    def rotate(self, x: Tensor, turns: Tensor) -> Tensor:
        """x (N, heads, dim) turned by `turns` from `at`; same shape, pairs interleaved."""
        half = x.shape[-1] // 2
        if self.interleaved:
            pairs = torch.view_as_complex(_even(x.float()).unflatten(-1, (half, 2)))
        else:
            pairs = torch.complex(x[..., :half].float(), x[..., half:].float())
        return torch.view_as_real(pairs * turns).flatten(-2).to(x.dtype)


def _even(x: Tensor) -> Tensor:
    """Neighbours as pairs: rows that begin at an odd place, behind a part of odd width, are copied."""
    odd = x.storage_offset() % 2 or any(stride % 2 for stride in x.stride()[:-1])
    return x.contiguous() if odd else x
