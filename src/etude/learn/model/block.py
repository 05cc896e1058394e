"""One block: attention and a feed-forward layer, each behind a norm, each added to the residual stream.

The feed-forward layer is dense (SwiGLU), or a mixture of experts with a shared expert.
"""

from __future__ import annotations

from torch import Tensor, nn

from etude.learn.model.attention import GroupedAttention, LatentAttention
from etude.learn.model.cache import CacheSpan
from etude.learn.model.config import ModelConfig
from etude.learn.model.experts import Experts, swiglu
from etude.learn.model.linear import Linear
from etude.learn.model.mask import DocumentMask
from etude.learn.model.norm import RMSNorm
from etude.learn.model.rope import Rope
from etude.learn.model.router import Router


class TransformerBlock(nn.Module):
    """Tokens (N, hidden) in and out, with the experts each token visited (N, K), or None in a dense block."""

    def __init__(self, config: ModelConfig, layer: int, rope: Rope) -> None:
        super().__init__()
        self.layer = layer
        attention = LatentAttention if config.family == "deepseek_v3" else GroupedAttention
        self.attention_norm = RMSNorm(config.hidden_size, config.norm_eps)
        self.attention = attention(config, rope)
        self.feed_norm = RMSNorm(config.hidden_size, config.norm_eps)
        self.has_experts = config.has_experts(layer)
        self.feed: FeedForward | MixtureOfExperts = (
            MixtureOfExperts(config) if self.has_experts else FeedForward(config.hidden_size, config.dense_intermediate)
        )

    def forward(
        self, x: Tensor, turns: Tensor, mask: DocumentMask, forced: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        x = x + self.attention(self.attention_norm(x), turns, mask)
        return self._feed(x, forced)

    def extend(self, x: Tensor, turns: Tensor, span: CacheSpan) -> tuple[Tensor, Tensor | None]:
        """The same for new tokens behind a cache."""
        x = x + self.attention.extend(self.attention_norm(x), turns, span, self.layer)
        return self._feed(x, None)

    def _feed(self, x: Tensor, forced: Tensor | None) -> tuple[Tensor, Tensor | None]:
        if isinstance(self.feed, MixtureOfExperts):
            y, experts = self.feed(self.feed_norm(x), forced)
            return x + y, experts
        return x + self.feed(self.feed_norm(x)), None


class FeedForward(nn.Module):
    """SwiGLU of one inner width; gate and up are one matrix."""

    def __init__(self, hidden: int, inner: int) -> None:
        super().__init__()
        self.gate_up = Linear(hidden, 2 * inner)
        self.down = Linear(inner, hidden)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(swiglu(self.gate_up(x)))


class MixtureOfExperts(nn.Module):
    """Routed experts, plus in the DeepSeek family experts that every token visits."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.router = Router(config)
        self.experts = Experts(config)
        self.shared = None
        if config.family == "deepseek_v3":
            self.shared = FeedForward(config.hidden_size, config.moe_intermediate * config.shared_experts)

    def forward(self, x: Tensor, forced: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Tokens (N, H) and forced choice (N, K) to output (N, H) and the choice (N, K)."""
        weights, experts = self.router(x, forced)
        y = self.experts(x, experts, weights)
        return y if self.shared is None else y + self.shared(x), experts
