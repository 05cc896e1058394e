"""The losses of the project: weighted cross entropy, the policy loss that needs only log-probabilities, and the divergence that
draft layers are trained by.

All see hidden states of chosen positions only, so no logit is computed for a token without weight.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

# Positions whose logits exist at one time. 4,096 x 1,024 entries in fp32 are 16 MiB; with a vocabulary of 160,000
# they are 2.6 GiB, still a part of one GPU.
CHUNK_POSITIONS = 4096

Head = Callable[[Tensor], Tensor]  # (N, D) hidden states -> (N, V) logits


def token_logprobs(hidden: Tensor, targets: Tensor, head: Head, temperature: float = 1.0) -> Tensor:
    """(N,) natural log-probability of each target. hidden (N, D), targets (N,)."""
    return _chunked(hidden, targets, lambda h, t: _logprobs(h, t, head, temperature))


def logprobs_and_entropy(
    hidden: Tensor, targets: Tensor, head: Head, temperature: float = 1.0
) -> tuple[Tensor, Tensor]:
    """As `token_logprobs`, with the entropy of each distribution (N,), which carries no gradient."""

    def both(h: Tensor, t: Tensor) -> Tensor:
        log_p = torch.log_softmax(head(h).float() / temperature, dim=-1)  # (N, V)
        with torch.no_grad():
            entropy = -(log_p.exp() * log_p).sum(-1)
        return torch.stack((log_p.gather(-1, t.unsqueeze(-1)).squeeze(-1), entropy))

    out = _chunked(hidden, targets, both)  # (2, N)
    return out[0], out[1].detach()


def weighted_cross_entropy(hidden: Tensor, targets: Tensor, weights: Tensor, head: Head) -> Tensor:
    """Sum of weight * -log p over the chosen positions, divided by the sum of weights; 0 where nothing has a weight. All (N, ...)."""
    total = weights.sum().clamp(min=torch.finfo(weights.dtype).tiny)
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

    return _chunked(hidden, teacher, kl)


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


def _chunked(hidden: Tensor, targets: Tensor, function: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """`function` over chunks of positions; the logits of a chunk are computed again in the backward pass."""
    if hidden.size(0) <= CHUNK_POSITIONS:
        return function(hidden, targets)
    parts = [
        checkpoint(function, h, t, use_reentrant=False)
        for h, t in zip(hidden.split(CHUNK_POSITIONS), targets.split(CHUNK_POSITIONS), strict=True)
    ]
    return torch.cat(parts, dim=-1)  # type: ignore[arg-type]
