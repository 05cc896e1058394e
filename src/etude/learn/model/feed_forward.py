"""The two feed-forward layers of a block: dense SwiGLU, and a mixture of experts beside a shared one."""

from __future__ import annotations

from torch import Tensor, nn

from etude.learn.model.config import ModelConfig
from etude.learn.model.experts import Experts, swiglu
from etude.learn.model.linear import Linear
from etude.learn.model.router import Router


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
