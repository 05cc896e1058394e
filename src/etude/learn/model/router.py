"""Which experts a token visits, and with what weight (DeepSeek-V3, arXiv 2412.19437, section 2.1.2; Qwen3-MoE).

Choice and weight are apart: the choice may be replayed from a rollout (`forced`), the weights always come from the live
scores of the chosen experts, so gradients flow through the router either way (router replay, arXiv 2510.11370).
The selection bias changes the choice, never the weight.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from etude.learn.model.config import ModelConfig
from etude.learn.model.float32_buffers import Float32Buffers

# Above any score a router can give (sigmoid and softmax are at most 1, biases move by thousandths), with room to count down.
FORCED_SCORE = 1e4


class Router(Float32Buffers):
    """Scores in fp32. `weight` (E, hidden), in gpt-oss `linear_bias` (E,) too. `bias` (E,), where the choice is balanced by one, is an fp32
    buffer that no gradient moves."""

    bias: Tensor | None
    linear_bias: nn.Parameter | None

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.experts, self.chosen = config.experts, config.experts_per_token
        self.sigmoid = config.router_scoring == "sigmoid"
        self.groups, self.groups_per_token = config.expert_groups, config.groups_per_token
        self.ranked_by = 2 if config.group_rank == "best_two" else 1  # scores of a group
        self.norm_topk = config.norm_topk
        self.scale = config.routed_scale
        self.weight = nn.Parameter(torch.empty(self.experts, config.hidden_size))
        self.register_parameter("linear_bias", nn.Parameter(torch.empty(self.experts)) if config.router_bias else None)
        self.register_buffer("bias", torch.zeros(self.experts) if config.selection_bias else None)

    def forward(self, x: Tensor, forced: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Weights (N, K) fp32 and experts (N, K) int64 for tokens x (N, hidden).

        `forced` (N, K) pins the choice; entries that are no expert's number are filled by the router's own best among the rest.
        """
        added = None if self.linear_bias is None else self.linear_bias.float()
        logits = F.linear(x.float(), self.weight.float(), added)  # (N, E)
        scores = logits.sigmoid() if self.sigmoid else logits.softmax(-1)
        experts = self.choose(scores.detach(), forced)
        weights = scores.gather(1, experts)
        if self.norm_topk:
            weights = weights / (weights.sum(-1, keepdim=True) + 1e-20)  # 1e-20: as published, against 0 / 0
        return weights * self.scale if self.scale != 1.0 else weights, experts

    def choose(self, scores: Tensor, forced: Tensor | None) -> Tensor:
        """(N, K) experts by biased, group-limited score; forced ones first and in their order."""
        ranking = scores if self.bias is None else scores + self.bias
        if self.groups > 1:
            ranking = self._limit_groups(ranking)
        if forced is not None:
            ranking = self._put_first(ranking, forced)
        return ranking.topk(self.chosen, dim=-1).indices

    def _limit_groups(self, ranking: Tensor) -> Tensor:
        """Experts outside the best groups (by the sum of a group's best two, or its best) fall to -inf."""
        grouped = ranking.unflatten(-1, (self.groups, -1))  # (N, G, E / G)
        best = grouped.topk(self.ranked_by, dim=-1).values.sum(-1).topk(self.groups_per_token, dim=-1).indices
        shut = torch.ones_like(grouped[..., 0], dtype=torch.bool).scatter_(1, best, False)  # (N, G)
        return grouped.masked_fill(shut.unsqueeze(-1), float("-inf")).flatten(1)

    def _put_first(self, ranking: Tensor, forced: Tensor) -> Tensor:
        """Raise forced experts above all others, the first one highest."""
        column = forced.long()
        column = column.masked_fill(column < 0, self.experts).clamp_(
            max=self.experts
        )  # (N, K); column E takes what is not forced
        order = FORCED_SCORE - torch.arange(self.chosen, device=ranking.device, dtype=ranking.dtype)
        padded = F.pad(ranking, (0, 1))  # (N, E + 1)
        return padded.scatter(1, column, order.expand_as(column))[:, : self.experts]


def expert_load(routes: Tensor, experts: int) -> Tensor:
    """How many tokens each expert got: routes (N, L_moe, K) to (L_moe, E) counts. Leave padding out of `routes`."""
    flat = routes.long().transpose(0, 1).flatten(1)  # (L_moe, N * K)
    return torch.zeros(flat.shape[0], experts, device=flat.device).scatter_add_(1, flat, torch.ones_like(flat).float())


def balanced_bias(bias: Tensor, load: Tensor, rate: float) -> Tensor:
    """The selection bias after one step: up by `rate` for experts below the mean load, down above (arXiv 2408.15664)."""
    return bias + rate * torch.sign(load.mean(-1, keepdim=True) - load)
