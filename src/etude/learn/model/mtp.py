"""Draft layers: multi-token prediction behind the trunk (DeepSeek-V3, arXiv 2412.19437, section 2.2).

Depth d (1, 2, ...) at position i joins the stream of the depth before it, h_i, with the embedding of token i + d and
predicts token i + d + 1:

    h'_i = eh_proj [enorm(embedding of token i + d); hnorm(h_i)],    h_i of this depth = norm(block(h'_i))

The first depth takes the trunk's normed hidden state (`Output.hidden`); what a depth returns is normed too, and is both the
input of the shared head and the h_i of the next depth. So do transformers' `MtpModel`, which reads these layers, and, for the first
depth, vLLM. The paper writes the two halves of the projection in the other order; published weights have the embedding first.
Embedding and head belong to the trunk and are not held again. The block is of the trunk's kind, with experts if the trunk has any.

Rope turns the block's queries and keys by the position of h_i. transformers counts from the token that comes in, d further on; only
differences enter a score, so it is the same.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from etude.learn.model.block import TransformerBlock
from etude.learn.model.cache import CacheSpan
from etude.learn.model.config import ModelConfig
from etude.learn.model.linear import Linear
from etude.learn.model.mask import DocumentMask
from etude.learn.model.norm import RMSNorm
from etude.learn.model.rope import Rope, Rotations


class MtpLayer(nn.Module):
    """One depth. Its block is layer `config.layers + index` on disk and in the cache; `index` is the depth counted from 0."""

    def __init__(self, config: ModelConfig, index: int, rope: Rope) -> None:
        super().__init__()
        self.enorm = RMSNorm(config.hidden_size, config.norm_eps, config.norm_offset)
        self.hnorm = RMSNorm(config.hidden_size, config.norm_eps, config.norm_offset)
        self.eh_proj = Linear(2 * config.hidden_size, config.hidden_size)
        self.block = TransformerBlock(config, config.layers + index, rope)
        self.norm = RMSNorm(config.hidden_size, config.norm_eps, config.norm_offset)

    def forward(
        self, hidden: Tensor, embedded: Tensor, turns: Rotations, mask: DocumentMask
    ) -> tuple[Tensor, Tensor | None]:
        """Hidden states (N, H) for the head and the next depth, and the experts chosen (N, K), None in a dense model.

        `hidden` (N, H) is normed, `embedded` (N, H) the embedding of the token that this depth looks at (`DocumentMask.ahead`), `turns`
        from `Rope.at` at the positions of `hidden`.
        """
        x, experts = self.block(self._join(hidden, embedded), turns, mask, None)
        return self.norm(x), experts

    def extend(self, hidden: Tensor, embedded: Tensor, turns: Rotations, span: CacheSpan) -> Tensor:
        """The same hidden states for new tokens behind a cache, which must hold this depth's layer."""
        x, _ = self.block.extend(self._join(hidden, embedded), turns, span)
        return self.norm(x)

    def _join(self, hidden: Tensor, embedded: Tensor) -> Tensor:
        return self.eh_proj(torch.cat((self.enorm(embedded), self.hnorm(hidden)), -1)).to(hidden.dtype)
