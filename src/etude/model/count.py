"""How many parameters a model has, in all and per token, without building it."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from etude.model.causal_lm import CausalLM
from etude.model.config import ModelConfig


@dataclass(frozen=True)
class ParameterCount:
    """`active` are those one token passes through: all but the experts it does not visit."""

    total: int
    active: int


def count_parameters(config: ModelConfig) -> ParameterCount:
    """Counted on the meta device: exact at any size, at the price of none."""
    with torch.device("meta"):
        model = CausalLM(config)
    total = sum(p.numel() for p in model.parameters())
    routed = sum(p.numel() for name, p in model.named_parameters() if ".experts." in name)
    return ParameterCount(total, total - routed + routed * config.experts_per_token // config.experts)
