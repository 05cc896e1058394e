"""One block: attention and a feed-forward layer, each with a norm before it, after it or both, each added to the residual stream.

The feed-forward layer is dense, or a mixture of experts, with or without shared ones.
"""

from __future__ import annotations

from torch import Tensor, nn

from etude.learn.model.attention import GroupedAttention, LatentAttention
from etude.learn.model.cache import CacheSpan
from etude.learn.model.config import ModelConfig
from etude.learn.model.experts import ACTIVATIONS, Experts
from etude.learn.model.linear import Linear
from etude.learn.model.mask import DocumentMask
from etude.learn.model.norm import RMSNorm
from etude.learn.model.rope import Rope, Rotations
from etude.learn.model.router import Router


class TransformerBlock(nn.Module):
    """Tokens (N, hidden) in and out, with the experts each token visited (N, K), or None in a dense block."""

    def __init__(self, config: ModelConfig, layer: int, rope: Rope) -> None:
        super().__init__()
        self.layer = layer
        before, after = config.norm_place in ("before", "both"), config.norm_place in ("after", "both")
        self.attention_norm = _norm(config, before)
        self.attention = (LatentAttention if config.attention == "latent" else GroupedAttention)(config, rope, layer)
        self.attention_out_norm = _norm(config, after)
        self.feed_norm = _norm(config, before)
        self.has_experts = config.has_experts(layer)
        self.feed: FeedForward | MixtureOfExperts = (
            MixtureOfExperts(config) if self.has_experts else FeedForward(config, config.dense_intermediate)
        )
        self.feed_out_norm = _norm(config, after)

    def forward(
        self, x: Tensor, turns: Rotations, mask: DocumentMask, forced: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        x = x + self.attention_out_norm(self.attention(self.attention_norm(x), turns, mask))
        return self._feed(x, forced)

    def extend(self, x: Tensor, turns: Rotations, span: CacheSpan) -> tuple[Tensor, Tensor | None]:
        """The same for new tokens behind a cache."""
        x = x + self.attention_out_norm(self.attention.extend(self.attention_norm(x), turns, span))
        return self._feed(x, None)

    def _feed(self, x: Tensor, forced: Tensor | None) -> tuple[Tensor, Tensor | None]:
        if isinstance(self.feed, MixtureOfExperts):
            y, experts = self.feed(self.feed_norm(x), forced)
            return x + self.feed_out_norm(y), experts
        return x + self.feed_out_norm(self.feed(self.feed_norm(x))), None


def _norm(config: ModelConfig, wanted: bool) -> nn.Module:
    return RMSNorm(config.hidden_size, config.norm_eps, config.norm_offset) if wanted else nn.Identity()


class FeedForward(nn.Module):
    """A gated feed-forward layer of one inner width; gate and up are one matrix."""

    def __init__(self, config: ModelConfig, inner: int, bias: bool | None = None) -> None:
        super().__init__()
        bias = config.feed_bias if bias is None else bias
        self.activation = ACTIVATIONS[config.activation]
        self.gate_up = Linear(config.hidden_size, 2 * inner, bias)
        self.down = Linear(inner, config.hidden_size, bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.activation(self.gate_up(x)))


class MixtureOfExperts(nn.Module):
    """Routed experts, plus in some families experts that every token visits, with or without a gate per token."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.router = Router(config)
        self.experts = Experts(config)
        self.shared = FeedForward(config, config.shared_width, bias=False) if config.shared_width else None
        self.shared_gate = Linear(config.hidden_size, 1) if config.shared_gate else None

    def forward(self, x: Tensor, forced: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Tokens (N, H) and forced choice (N, K) to output (N, H) and the choice (N, K)."""
        weights, experts = self.router(x, forced)
        y = self.experts(x, experts, weights)
        if self.shared is None:
            return y, experts
        added = self.shared(x)
        if self.shared_gate is not None:
            added = added * self.shared_gate(x).sigmoid()
        return y + added, experts
