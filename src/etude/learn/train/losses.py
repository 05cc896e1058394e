"""The losses of the project: weighted cross entropy, the policy loss that needs only log-probabilities, and the divergence that
draft layers are trained by.

All see hidden states of chosen positions only, so no logit is computed for a token without weight.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

# Positions whose logits exist at one time: at most this many, and no more than LOGIT_BYTES of logits in fp32. With a vocabulary of 1,024 the
# positions are the bound (16 MiB). With 49,152 the bytes are: 320 positions instead of 0.8 GB, of which a loss holds several copies.
CHUNK_POSITIONS = 4096
LOGIT_BYTES = 64 << 20
CHUNK_STEP = 64  # a chunk is a multiple of it, so that products of few shapes are computed

Head = Callable[[Tensor], Tensor]  # (N, D) hidden states -> (N, V) logits


def token_logprobs(hidden: Tensor, targets: Tensor, head: Head, temperature: float = 1.0) -> Tensor:
    """(N,) natural log-probability of each target. hidden (N, D), targets (N,)."""
    return _chunked(hidden, targets, head, lambda h, t: _logprobs(h, t, head, temperature))


def logprobs_and_entropy(
    hidden: Tensor, targets: Tensor, head: Head, temperature: float = 1.0
) -> tuple[Tensor, Tensor]:
    """As `token_logprobs`, with the entropy of each distribution (N,), which carries no gradient."""

    def both(h: Tensor, t: Tensor) -> Tensor:
        log_p = torch.log_softmax(head(h).float() / temperature, dim=-1)  # (N, V)
        with torch.no_grad():
            entropy = -(log_p.exp() * log_p).sum(-1)
        return torch.stack((log_p.gather(-1, t.unsqueeze(-1)).squeeze(-1), entropy))

    out = _chunked(hidden, targets, head, both)  # (2, N)
    return out[0], out[1].detach()


def weighted_cross_entropy(
    hidden: Tensor, targets: Tensor, weights: Tensor, head: Head, whole: Tensor | None = None
) -> Tensor:
    """Sum of weight * -log p over the chosen positions, divided by the sum of weights or by `whole`, that of a batch of which these are a part; 0
    where nothing has a weight. All (N, ...)."""
    total = (weights.sum() if whole is None else whole).clamp(min=torch.finfo(weights.dtype).tiny)
    return -(weights * token_logprobs(hidden, targets, head)).sum() / total


def divergence(hidden: Tensor, teacher: Tensor, head: Head) -> Tensor:
    """(N,) KL(p || q) in nats over the whole vocabulary: q the head's distribution at `hidden` (N, D), p that at `teacher` (N, D).

    The teacher's carries no gradient.
    """

    def kl(h: Tensor, t: Tensor) -> Tensor:
        with torch.no_grad():
            log_p = torch.log_softmax(head(t).float(), dim=-1)  # (N, V)
        log_q = torch.log_softmax(head(h).float(), dim=-1)
        return torch.nn.functional.kl_div(log_q, log_p, reduction="none", log_target=True).sum(-1)

    return _chunked(hidden, teacher, head, kl)


def policy_coefficients(advantages: Tensor, weights: Tensor, rollouts: int, loss_tokens: int) -> Tensor:
    """(N,) the factors c of the policy loss sum(c * logprob), one a sampled token; constants to the gradient.

    c = -A * w / (rollouts * loss_tokens): the mean over rollouts of a sum over tokens divided by a constant (Dr. GRPO,
    arXiv 2503.20783): neither lengths nor the group's spread enter, and segments of one rollout simply add up (promise 4).
    `weights` w (N,) are what `trust` makes of tokens that other weights sampled; all the inputs are (N,).
    """
    return -advantages * weights / (rollouts * loss_tokens)


def _logprobs(hidden: Tensor, targets: Tensor, head: Head, temperature: float) -> Tensor:
    logits = head(hidden).float()
    if temperature != 1.0:
        logits = logits / temperature
    return -torch.nn.functional.cross_entropy(logits, targets, reduction="none")


def chunk_positions(hidden: Tensor, head: Head) -> int:
    """Positions of hidden (N, D) whose logits may exist at one time."""
    if hidden.size(0) <= min(CHUNK_STEP, CHUNK_POSITIONS):
        return CHUNK_POSITIONS
    with torch.no_grad():
        vocabulary = head(hidden[:1]).shape[-1]
    return min(CHUNK_POSITIONS, positions_within(LOGIT_BYTES, vocabulary))


def positions_within(size: int, vocabulary: int) -> int:
    """Positions whose fp32 logits take at most `size` bytes, a multiple of CHUNK_STEP and at least one."""
    return max(CHUNK_STEP, size // (4 * vocabulary) // CHUNK_STEP * CHUNK_STEP)


def _chunked(hidden: Tensor, targets: Tensor, head: Head, function: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """`function` over chunks of positions; the logits of a chunk are computed again in the backward pass."""
    size = chunk_positions(hidden, head)
    if hidden.size(0) <= size:
        return function(hidden, targets)
    parts = [
        checkpoint(function, h, t, use_reentrant=False, preserve_rng_state=False)
        for h, t in zip(hidden.split(size), targets.split(size), strict=True)
    ]
    return torch.cat(parts, dim=-1)  # type: ignore[arg-type]
