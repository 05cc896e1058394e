"""How many parameters a model has, in all and per token, without building it, and what a token costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch

from etude.learn.model.causal_lm import CausalLM
from etude.learn.model.config import ModelConfig
from etude.learn.model.transformers_backend.config import TransformersConfig, count_transformers


@dataclass(frozen=True)
class ParameterCount:
    """Of the trunk: `total`, and `active`, those one token passes through: all but the experts it does not visit. `drafts`, all of
    the draft layers', come on top.
    """

    total: int
    active: int
    drafts: int


def count_parameters(config: ModelConfig) -> ParameterCount:
    """Counted on the meta device: exact at any size, at the price of none."""
    if isinstance(config, TransformersConfig):
        return ParameterCount(*count_transformers(config), drafts=0)
    return _counted(config)  # type: ignore[arg-type]  # frozen, so it has a hash


@lru_cache
def _counted(config: ModelConfig) -> ParameterCount:
    with torch.device("meta"):
        model = CausalLM(config)
    drafts = sum(p.numel() for p in model.mtp.parameters())
    total = sum(p.numel() for p in model.parameters()) - drafts
    routed = sum(p.numel() for name, p in model.blocks.named_parameters() if ".experts." in name)
    return ParameterCount(total, total - routed + routed * config.experts_per_token // max(config.experts, 1), drafts)


@dataclass(frozen=True)
class ComputeCost:
    """Multiply-adds of a forward: `token` for each token, `pair` for each token and each that it sees, itself among them."""

    token: float
    pair: float

    @classmethod
    def of_model(cls, config: ModelConfig) -> ComputeCost:
        """Active parameters for a token; in every layer, scores and sums of the heads for a pair."""
        if config.attention == "latent":
            widths = config.nope_dim + config.rope_dim + config.v_dim
        else:
            widths = 2 * config.head_dim
        return cls(float(count_parameters(config).active), float(config.layers * config.heads * widths))

    def of(self, tokens: int, rows: Sequence[int]) -> float:
        """`tokens` that run, laid out as attention rows of these lengths."""
        return self.token * tokens + self.pair * sum(length * (length + 1) / 2 for length in rows)
