"""The two attentions: grouped-query and latent.

Grouped-query attention has the switches of its families: norms of queries and keys, biases, windows, partial rotation, sinks, gates of the output.

Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1) is computed as `DeepseekV3ForCausalLM` does. Training expands the latent to
keys and values per head. Decoding uses the absorbed form: the key up-projection moves to the query and the value up-projection behind the softmax, so
all heads of a row are query rows against one cached latent.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from etude.learn.model.cache import CacheSpan, ContextPart
from etude.learn.model.causal_attention import attention_with_sinks, causal_attention
from etude.learn.model.config import ModelConfig
from etude.learn.model.linear import Linear
from etude.learn.model.mask import DocumentMask
from etude.learn.model.norm import RMSNorm
from etude.learn.model.rope import Rope, Rotations, score_scale


class GroupedAttention(nn.Module):
    """Tokens (N, hidden) in and out."""

    sinks: Tensor | None

    def __init__(self, config: ModelConfig, rope: Rope, layer: int) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.width = config.heads_of(layer), config.kv_heads, config.head_dim
        self.group = self.heads // self.kv_heads
        self.scale, self.layer, self.window = score_scale(config), layer, config.window_of(layer)
        self.rotate, self.of_layer = rope.rotate, rope.of_layer
        kv_width = self.kv_heads * self.width
        self.q = Linear(config.hidden_size, self.heads * self.width, config.qkv_bias)
        self.k = Linear(config.hidden_size, kv_width, config.qkv_bias)
        self.v = Linear(config.hidden_size, kv_width, config.qkv_bias)
        self.out = Linear(self.heads * self.width, config.hidden_size, config.out_bias)
        self.q_norm: nn.Module = nn.Identity()
        self.k_norm: nn.Module = nn.Identity()
        self.norm_all = config.qk_norm == "layer"
        if config.qk_norm != "none":
            widths = (self.heads * self.width, kv_width) if self.norm_all else (self.width, self.width)
            self.q_norm, self.k_norm = (RMSNorm(width, config.norm_eps, config.norm_offset) for width in widths)
        self.register_parameter("sinks", nn.Parameter(torch.empty(self.heads)) if config.sinks else None)
        gates = {"none": 0, "head": self.heads, "element": self.heads * self.width}[config.attention_gate]
        self.gate = Linear(config.hidden_size, gates) if gates else None

    def _project(self, x: Tensor, turns: Rotations) -> tuple[Tensor, Tensor, Tensor]:
        """Queries (N, heads, width), keys and values (N, kv_heads, width)."""
        rotations = self.of_layer(turns, self.layer)
        q = self.rotate(self._normed(self.q_norm, self.q(x), self.heads), rotations)
        k = self.rotate(self._normed(self.k_norm, self.k(x), self.kv_heads), rotations)
        return _grown(q, turns), k, self.v(x).view(-1, self.kv_heads, self.width)

    def _normed(self, norm: nn.Module, x: Tensor, heads: int) -> Tensor:
        """x (N, heads * width) as (N, heads, width), normed over a head or over all."""
        return norm(x).view(-1, heads, self.width) if self.norm_all else norm(x.view(-1, heads, self.width))

    def forward(self, x: Tensor, turns: Rotations, mask: DocumentMask) -> Tensor:
        attention = partial(causal_attention, scale=self.scale, window=self.window, sinks=self.sinks)
        q, k, v = self._project(x, turns)
        k, v = mask.context(k, v)
        return self._output(mask.attend(q, k, v, attention).flatten(1), x)

    def _output(self, mixed: Tensor, x: Tensor) -> Tensor:
        """mixed (N, heads * width) of the tokens x (N, hidden), gated and projected."""
        if self.gate is not None:
            gates = F.softplus(self.gate(x).float()).to(mixed.dtype)
            gates = gates.unflatten(-1, (self.heads, -1))  # (N, heads, 1 or width)
            mixed = (mixed.unflatten(-1, (self.heads, self.width)) * gates).flatten(1)
        return self.out(mixed)

    def extend(self, x: Tensor, turns: Rotations, span: CacheSpan) -> Tensor:
        """The same for new tokens (N, hidden) behind a cache; the heads of a group are query rows against one key head."""
        q, k, v = self._project(x, turns)
        rows = span.to_rows(q).view(span.batch, span.width, self.kv_heads, self.group, self.width)
        rows = rows.transpose(1, 2).flatten(2, 3)  # (B, kv_heads, Tn * group, width)
        parts = span.store(self.layer, torch.cat((k.flatten(1), v.flatten(1)), -1), self.window)
        if span.shared and not self.window and self.sinks is None:
            whole = self._attend_shared(rows, span)
        else:
            mixed = [
                self._attend(rows[part.rows], part, span) for part in parts
            ]  # each (b, kv_heads, Tn * group, width)
            whole = mixed[0] if len(mixed) == 1 else torch.cat(mixed)
        whole = whole.view(span.batch, self.kv_heads, span.width, self.group, self.width).transpose(1, 2)
        return self._output(span.to_tokens(whole.flatten(2)), x)

    def _attend_shared(self, rows: Tensor, span: CacheSpan) -> Tensor:
        """As `_attend` over all parts of rows (B, kv_heads, R, width). What several rows begin with is read once for all of them: the two softmaxes
        are joined by their sums, as flash attention joins blocks (arXiv 2205.14135, section 3.1)."""
        whole = torch.empty_like(rows)
        for shared in span.shared:
            own, sums = [], []
            for part in span.behind(self.layer, shared):
                bias = span.bias_for(part, self.group)
                mixed, summed = _flash(rows[part.rows], *self._heads(part.context), bias, self.scale)
                own.append(mixed)
                sums.append(summed)
            mixed = torch.cat(own)
            if shared.length:
                first, first_sums = self._attend_beginning(rows[shared.rows], span.beginning(self.layer, shared))
                share = torch.sigmoid(first_sums - torch.cat(sums)).unsqueeze(-1)  # fp32 also for bf16 rows
                mixed = torch.lerp(mixed.to(share.dtype), first.to(share.dtype), share).to(rows.dtype)
            whole[shared.rows] = mixed
        return whole

    def _attend_beginning(self, rows: Tensor, context: Tensor) -> tuple[Tensor, Tensor]:
        """rows (b, kv_heads, R, width) to one context (1, s, width) that all of them see: mixed (b, kv_heads, R, width), sums (b, kv_heads, R)."""
        batch, _, count, _ = rows.shape
        merged = rows.transpose(0, 1).reshape(1, self.kv_heads, batch * count, self.width)
        mixed, sums = _flash(merged, *self._heads(context), None, self.scale)
        back = mixed.view(self.kv_heads, batch, count, self.width).transpose(0, 1)
        return back, sums.view(self.kv_heads, batch, count).transpose(0, 1)

    def _heads(self, context: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values (b, kv_heads, s, width) of a context (b, s, 2 * kv_heads * width)."""
        keys, values = context.unflatten(-1, (2, self.kv_heads, self.width)).unbind(2)
        return keys.transpose(1, 2), values.transpose(1, 2)

    def _attend(self, rows: Tensor, part: ContextPart, span: CacheSpan) -> Tensor:
        keys, values = self._heads(part.context)
        bias = span.bias_for(part, self.group, self.window)
        if self.sinks is None:
            return F.scaled_dot_product_attention(rows, keys, values, bias, scale=self.scale)
        sinks = self.sinks.view(self.kv_heads, 1, self.group).expand(-1, span.width, -1).reshape(self.kv_heads, -1)
        return attention_with_sinks(rows, keys, values, bias, self.scale, sinks)


def _grown(q: Tensor, turns: Rotations) -> Tensor:
    """Queries (N, heads, width) by the factors of their positions."""
    return q if turns.growth is None else q * turns.growth.to(q.dtype)


def _flash(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, scale: float) -> tuple[Tensor, Tensor]:
    """Attention of q (b, heads, R, width) to k and v (b, heads, s, width), and the logarithm of each query's sum of exponentials (b, heads, R)."""
    op = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    mixed, summed = op(q, k, v, 0.0, False, attn_mask=bias, scale=scale)
    return mixed, summed


# transformers' class leaves the latents' norms at this epsilon whatever the config says.
LATENT_NORM_EPS = 1e-6


class LatentAttention(nn.Module):
    """Tokens (N, hidden) in and out."""

    def __init__(self, config: ModelConfig, rope: Rope, layer: int) -> None:
        super().__init__()
        self.heads, self.nope, self.rope_dim, self.value = config.heads, config.nope_dim, config.rope_dim, config.v_dim
        self.latent = config.kv_lora_rank
        self.scale, self.layer = score_scale(config), layer
        self.rotate, self.of_layer = rope.rotate, rope.of_layer
        query_width = self.heads * (self.nope + self.rope_dim)
        if config.q_lora_rank:
            self.q_a = Linear(config.hidden_size, config.q_lora_rank)
            self.q_a_norm = RMSNorm(config.q_lora_rank, LATENT_NORM_EPS)
            self.q_b = Linear(config.q_lora_rank, query_width)
        else:
            self.q = Linear(config.hidden_size, query_width)
        self.low_rank_query = bool(config.q_lora_rank)
        self.kv_a = Linear(config.hidden_size, self.latent + self.rope_dim)
        self.kv_a_norm = RMSNorm(self.latent, LATENT_NORM_EPS)
        self.kv_b = Linear(self.latent, self.heads * (self.nope + self.value))
        self.out = Linear(self.heads * self.value, config.hidden_size)

    def _project(self, x: Tensor, turns: Rotations) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Queries (N, heads, nope) and (N, heads, rope), latent (N, latent), rotated key (N, 1, rope)."""
        rotations = self.of_layer(turns, self.layer)
        q = self.q_b(self.q_a_norm(self.q_a(x))) if self.low_rank_query else self.q(x)
        q_nope, q_rope = q.view(-1, self.heads, self.nope + self.rope_dim).split((self.nope, self.rope_dim), -1)
        latent, k_rope = self.kv_a(x).split((self.latent, self.rope_dim), -1)
        return (
            _grown(q_nope, turns),
            _grown(self.rotate(q_rope, rotations), turns),
            self.kv_a_norm(latent),
            self.rotate(k_rope.unsqueeze(1), rotations),
        )

    def forward(self, x: Tensor, turns: Rotations, mask: DocumentMask) -> Tensor:
        q_nope, q_rope, latent, k_rope = self._project(x, turns)
        latent, k_rope = mask.context(latent, k_rope)
        k_nope, v = self.kv_b(latent).view(-1, self.heads, self.nope + self.value).split((self.nope, self.value), -1)
        q = torch.cat((q_nope, q_rope), -1)  # (N, heads, nope + rope)
        k = torch.cat((k_nope, k_rope.expand(-1, self.heads, -1)), -1)
        return self.out(mask.attend(q, k, v, partial(causal_attention, scale=self.scale)).flatten(1))

    def extend(self, x: Tensor, turns: Rotations, span: CacheSpan) -> Tensor:
        """The same for new tokens (N, hidden) behind a cache."""
        q_nope, q_rope, latent, k_rope = self._project(x, turns)
        up = self.kv_b.product_weight.view(self.heads, self.nope + self.value, self.latent)
        q_latent = torch.bmm(q_nope.transpose(0, 1), up[:, : self.nope]).transpose(0, 1)  # (N, heads, latent)
        # (B, 1, Tn * heads, latent + rope)
        rows = span.to_rows(torch.cat((q_latent, q_rope), -1)).flatten(1, 2).unsqueeze(1)
        parts = span.store(self.layer, torch.cat((latent, k_rope.squeeze(1)), -1))
        mixed = [self._attend(rows[part.rows], part, span) for part in parts]
        whole = mixed[0] if len(mixed) == 1 else torch.cat(mixed)
        mixed = span.to_tokens(whole.view(span.batch, span.width, self.heads, -1))[
            ..., : self.latent
        ]  # (N, heads, latent)
        value = torch.bmm(mixed.transpose(0, 1), up[:, self.nope :].transpose(1, 2))  # (heads, N, value)
        return self.out(value.transpose(0, 1).flatten(1))

    def _attend(self, rows: Tensor, part: ContextPart, span: CacheSpan) -> Tensor:
        """Keys serve as values, so that one kernel reads the cache once; the rope part of the result is dropped later."""
        context = part.context.unsqueeze(1)  # (b, 1, s, latent + rope)
        return F.scaled_dot_product_attention(rows, context, context, span.bias_for(part, self.heads), scale=self.scale)
