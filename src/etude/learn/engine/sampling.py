"""Drawing tokens, all rows of a batch at once, each by its own temperature, top-p and random numbers.

A row's token depends on its own logits and its own number in [0, 1) alone: the inverse of the cumulative distribution, not
a shared generator. The numbers of a request come from Philox keyed by (seed, prompt length), so the same request gives the
same tokens for any other requests in the batch, up to the last bits in which logits differ between batch shapes (1e-6: about one
token in 1e5 falls on the other side of a boundary). The prompt length in the key keeps the turns of one session apart.

The logprob is that of the distribution drawn from: after temperature and top-p. Temperature 0 takes the likeliest token;
its logprob is reported at temperature 1, for "certain" would tell nothing.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

WORD = 2**64
# Logits that are drawn from at a time. glibc gives larger blocks back to the kernel, which clears their pages for every step again: 32 rows of
# 49,152 tokens took 28 ms at once, four fifths of it for pages.
PIECE = 1 << 17
NOT_FINITE = "its logits are not finite numbers: the weights, or what they made of this session, are broken"


def noise(seed: int, prompt_tokens: int, count: int) -> np.ndarray:
    """(count,) float64 in [0, 1), the same for the same seed and prompt length."""
    key = np.array([seed % WORD, prompt_tokens], dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=key)).random(count)


def sample(logits: Tensor, noise: Tensor, temperature: Tensor | None, top_p: Tensor | None) -> tuple[Tensor, Tensor]:
    """Tokens (B,) int64 and their logprobs (B,) fp32 from logits (B, V) and noise (B,) float64.

    `temperature` and `top_p` are (B,); None means 1 in every row, which saves their cost. A row whose logits are no distribution (NaN,
    +inf, all -inf) gets token 0 with logprob NaN; the other rows are not touched by it.
    """
    rows = max(1, PIECE // logits.shape[1])
    ids, picked = torch.empty(len(logits), dtype=torch.long), torch.empty(len(logits))
    for start in range(0, len(logits), rows):
        piece = slice(start, start + rows)
        settings = (None if x is None else x[piece] for x in (temperature, top_p))
        ids[piece], picked[piece] = _sample(logits[piece], noise[piece], *settings)
    return ids, picked


def _sample(logits: Tensor, noise: Tensor, temperature: Tensor | None, top_p: Tensor | None) -> tuple[Tensor, Tensor]:
    logits = logits.float()
    greedy = None if temperature is None else temperature <= 0
    logprobs = distribution(logits, temperature, top_p)
    # Cumulated in float64: in fp32 the tail of a large vocabulary would be lost to rounding.
    cumulative = logprobs.exp().cumsum(-1, dtype=torch.float64)
    drawn = torch.searchsorted(cumulative, noise.unsqueeze(1) * cumulative[:, -1:], right=True)  # (B, 1)
    if greedy is not None and bool(greedy.any()):
        drawn = torch.where(greedy.unsqueeze(1), logits.argmax(-1, keepdim=True), drawn)
    sound = cumulative[:, -1:] > 0  # (B, 1), False for NaN; else it is 1 up to rounding
    drawn = torch.where(sound, drawn, 0)
    picked = torch.where(sound, logprobs.gather(1, drawn), float("nan"))
    return drawn.squeeze(1), picked.squeeze(1)


def distribution(logits: Tensor, temperature: Tensor | None, top_p: Tensor | None) -> Tensor:
    """Logprobs (B, V) after temperature and top-p, under which logprobs are reported. Temperature 0 reads as 1."""
    logits = logits.float()
    if temperature is not None:
        # The largest becomes 0, which a tiny temperature leaves finite; the others become as small as they like.
        logits = logits - logits.amax(-1, keepdim=True)
        logits = logits / torch.where(temperature <= 0, 1.0, temperature).unsqueeze(1)
    logprobs = logits.log_softmax(-1)
    return logprobs if top_p is None else _truncated(logprobs, top_p)


def _truncated(logprobs: Tensor, top_p: Tensor) -> Tensor:
    """Only the likeliest tokens that together reach `top_p` (B,), renormalised; the others at -inf."""
    ordered, order = logprobs.sort(-1, descending=True)
    mass = ordered.exp()
    beyond = mass.cumsum(-1) - mass >= top_p.unsqueeze(1)  # the first is never beyond
    cut = torch.zeros_like(beyond).scatter(1, order, beyond)
    return logprobs.masked_fill(cut, float("-inf")).log_softmax(-1)
