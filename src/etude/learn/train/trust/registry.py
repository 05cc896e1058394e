"""The options by name, and what one came to in a step."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from etude.learn.train.trust import dppo_mask, icepop, none, ppo_clip, tis
from etude.learn.train.trust.settings import TrustKind, TrustSettings

# (N,) logprobs of the trainer (detached) and of the sampler, advantages, settings -> (N,) factors >= 0
Weigh = Callable[[Tensor, Tensor, Tensor, TrustSettings], Tensor]

OPTIONS: dict[TrustKind, Weigh] = {
    "none": none.weights,
    "tis": tis.weights,
    "ppo_clip": ppo_clip.weights,
    "icepop": icepop.weights,
    "dppo_mask": dppo_mask.weights,
}


def trusted(logprobs: Tensor, sampler: Tensor, advantages: Tensor, settings: TrustSettings) -> Tensor:
    """(N,) what each sampled token counts, a constant to the gradient; all inputs are (N,)."""
    return OPTIONS[settings.kind](logprobs.detach(), sampler, advantages, settings)


class Trusted:
    """Figures over a step's tokens: how many were dropped or cut short, what the kept ones count, how far the ratios are from 1."""

    def __init__(self, tokens: int = 0, sums: Tensor | None = None) -> None:
        self.tokens = tokens
        self.sums = torch.zeros(4, dtype=torch.float64) if sums is None else sums

    @classmethod
    def of_all(cls, parts: Sequence[tuple[int, Tensor]]) -> Trusted:
        """Of the (tokens, sums) of every rank."""
        return cls(sum(tokens for tokens, _ in parts), torch.stack([sums for _, sums in parts]).sum(0))

    def take(self, weights: Tensor, logprobs: Tensor, sampler: Tensor) -> None:
        """One micro-batch; all (N,)."""
        ratios = (logprobs.detach() - sampler).double().exp()
        found = weights.double()
        parts = (found == 0, (found > 0) & (found < ratios * (1 - 1e-6)), found, (ratios - 1).square())
        self.tokens += len(found)
        self.sums += torch.stack([part.double().sum() for part in parts]).cpu()

    def figures(self) -> dict[str, float]:
        """Shares and means; `ratio_chi2` is the mean of (r - 1)^2, the chi-square divergence of the trainer from the sampler."""
        if not self.tokens:
            return {}
        dropped, cut, weight, chi2 = (self.sums / self.tokens).tolist()
        return {"trust_dropped": dropped, "trust_cut": cut, "trust_weight": weight, "ratio_chi2": chi2}
