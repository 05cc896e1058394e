"""Grouped-query attention with normalised queries and keys, as `Qwen3MoeForCausalLM` computes it."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from etude.learn.model.cache import Span
from etude.learn.model.causal_attention import causal_attention
from etude.learn.model.config import ModelConfig
from etude.learn.model.linear import Linear
from etude.learn.model.mask import DocumentMask
from etude.learn.model.norm import RMSNorm
from etude.learn.model.rope import Rope, score_scale


class GroupedAttention(nn.Module):
    """Tokens (N, hidden) in and out."""

    def __init__(self, config: ModelConfig, rope: Rope) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.width = config.heads, config.kv_heads, config.head_dim
        self.group = self.heads // self.kv_heads
        self.scale = score_scale(config)
        self.rotate = rope.rotate
        self.q = Linear(config.hidden_size, self.heads * self.width)
        self.k = Linear(config.hidden_size, self.kv_heads * self.width)
        self.v = Linear(config.hidden_size, self.kv_heads * self.width)
        self.out = Linear(self.heads * self.width, config.hidden_size)
        self.q_norm = RMSNorm(self.width, config.norm_eps)
        self.k_norm = RMSNorm(self.width, config.norm_eps)

    def _project(self, x: Tensor, turns: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries (N, heads, width), keys and values (N, kv_heads, width)."""
        q = self.rotate(self.q_norm(self.q(x).view(-1, self.heads, self.width)), turns)
        k = self.rotate(self.k_norm(self.k(x).view(-1, self.kv_heads, self.width)), turns)
        return q, k, self.v(x).view(-1, self.kv_heads, self.width)

    def forward(self, x: Tensor, turns: Tensor, mask: DocumentMask) -> Tensor:
        q, k, v = (mask.to_rows(part) for part in self._project(x, turns))  # (D, S, heads or kv_heads, width)
        return self.out(mask.to_tokens(causal_attention(q, k, v, self.scale)).flatten(1))

    def extend(self, x: Tensor, turns: Tensor, span: Span, layer: int) -> Tensor:
        """The same for new tokens (N, hidden) behind a cache; the heads of a group are query rows against one key head."""
        q, k, v = self._project(x, turns)
        context = span.store(layer, torch.cat((k.flatten(1), v.flatten(1)), -1))  # (B, S, 2 * kv_heads * width)
        keys, values = context.unflatten(-1, (2, self.kv_heads, self.width)).unbind(2)  # (B, S, kv_heads, width)
        rows = span.to_rows(q).view(span.batch, span.width, self.kv_heads, self.group, self.width)
        rows = rows.transpose(1, 2).flatten(2, 3)  # (B, kv_heads, Tn * group, width)
        mixed = F.scaled_dot_product_attention(
            rows, keys.transpose(1, 2), values.transpose(1, 2), span.bias_for(self.group), scale=self.scale
        )
        mixed = mixed.view(span.batch, self.kv_heads, span.width, self.group, self.width).transpose(1, 2)
        return self.out(span.to_tokens(mixed.flatten(2)))
