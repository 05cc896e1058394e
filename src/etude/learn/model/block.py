"""One block: attention and feed-forward, each behind a norm, each added to the stream."""

from __future__ import annotations

from torch import Tensor, nn

from etude.learn.model.attention_gqa import GroupedAttention
from etude.learn.model.attention_mla import LatentAttention
from etude.learn.model.cache import Span
from etude.learn.model.config import ModelConfig
from etude.learn.model.feed_forward import FeedForward, MixtureOfExperts
from etude.learn.model.mask import DocumentMask
from etude.learn.model.norm import RMSNorm
from etude.learn.model.rope import Rope


class Block(nn.Module):
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

    def extend(self, x: Tensor, turns: Tensor, span: Span) -> tuple[Tensor, Tensor | None]:
        """The same for new tokens behind a cache."""
        x = x + self.attention.extend(self.attention_norm(x), turns, span, self.layer)
        return self._feed(x, None)

    def _feed(self, x: Tensor, forced: Tensor | None) -> tuple[Tensor, Tensor | None]:
        if isinstance(self.feed, MixtureOfExperts):
            y, experts = self.feed(self.feed_norm(x), forced)
            return x + y, experts
        return x + self.feed(self.feed_norm(x)), None
