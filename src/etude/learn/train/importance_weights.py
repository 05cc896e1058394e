"""Importance weights: how much a token counts in the policy step that other weights sampled. `rl.update.trust.kind` chooses one.

Each option is a function of the tokens of a micro-batch. With r = p_trainer / p_sampler it returns a factor per token, a constant to the
gradient. Options that drop a token give it 0; the loss still divides by all tokens, so dropping some does not enlarge the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, cast

import torch
from torch import Tensor

from etude.core.plugins import PluginError, import_object
from etude.learn.train.importance_settings import ImportanceSettings

# (N,) logprobs of the trainer (detached) and of the sampler, advantages, settings -> (N,) factors >= 0
ImportanceWeight = Callable[[Tensor, Tensor, Tensor, ImportanceSettings], Tensor]

# e to this is far above every bound, and finite: an infinite ratio times an advantage of 0 would be NaN.
LARGEST_LOG_RATIO = 60.0


def uncorrected(logprobs: Tensor, sampler: Tensor, advantages: Tensor, settings: ImportanceSettings) -> Tensor:
    """(N,) ones: no correction. Staleness and mismatch bias the gradient."""
    return torch.ones_like(logprobs)


def truncated(logprobs: Tensor, sampler: Tensor, advantages: Tensor, settings: ImportanceSettings) -> Tensor:
    """(N,) in (0, cap]: truncated importance sampling, min(r, cap). Public recipes cap at 2 to 5.

    Unbiased except for the cap, which bounds the variance from above. A token that has become rare counts little, in proportion.
    """
    return (logprobs - sampler).exp().clamp(max=settings.tis.cap)


def ppo_clip(logprobs: Tensor, sampler: Tensor, advantages: Tensor, settings: ImportanceSettings) -> Tensor:
    """(N,) r or 0: the gradient of PPO's clipped surrogate (Schulman et al. 2017, arXiv 1707.06347).

        J = min(r A, clip(r, 1 - low, 1 + high) A)      dJ/dtheta = A r dlog p where the first is the smaller, else 0

    So the weight is r, and 0 where the token has moved far enough in the direction of its advantage: r > 1 + high for A > 0, r < 1 - low for
    A < 0. With `high` above `low` rare tokens may rise (DAPO, arXiv 2503.14476: 0.2 and 0.28). For A < 0 the surrogate has no upper bound:
    a token that the sampler found very unlikely would count without limit, hence the dual clip (Ye et al. 2020, arXiv 1912.09729: 3).
    The weight is 0 for a token to which the sampler gave probability 0: it has no ratio, and without `dual` nothing bounds it.
    """
    bounds, ratios = settings.ppo_clip, (logprobs - sampler).clamp(max=LARGEST_LOG_RATIO).exp()
    stopped = ((advantages > 0) & (ratios > 1 + bounds.high)) | ((advantages < 0) & (ratios < 1 - bounds.low))
    if bounds.dual is not None:
        stopped |= (advantages < 0) & (ratios > bounds.dual)
    stopped |= sampler.isneginf()
    return ratios.masked_fill(stopped, 0.0)


def icepop(logprobs: Tensor, sampler: Tensor, advantages: Tensor, settings: ImportanceSettings) -> Tensor:
    """(N,) r within [low, high], else 0: IcePop drops both tails, whatever the advantage (Ring-1T: 0.5 and 5).

    Made for mixtures of experts, whose trainer and sampler disagree strongly on a few tokens.
    """
    band, ratios = settings.icepop, (logprobs - sampler).exp()
    return ratios.masked_fill((ratios < band.low) | (ratios > band.high), 0.0)


def dppo_mask(logprobs: Tensor, sampler: Tensor, advantages: Tensor, settings: ImportanceSettings) -> Tensor:
    """(N,) r up to `cap`, or 0: DPPO's mask in its binary total-variation form (arXiv 2602.04879).

    The trust region is a distance of probabilities, not their ratio. With p = p_trainer(token) and q = p_sampler(token) a token is dropped
    if p - q > divergence for A > 0, or q - p > divergence for A < 0. |p - q| is the total variation between the two distributions seen as
    "this token or another", a lower bound of the whole distance (data processing). A rare token may change its ratio tenfold, while a likely
    token that lost a fifth of all probability is stopped; ratios do the opposite. The cap is an addition of this project: the ratio of a rare
    token has no bound.
    """
    numbers = settings.dppo_mask
    difference = logprobs.exp() - sampler.exp()
    in_direction = difference * advantages.sign()
    return (logprobs - sampler).exp().clamp(max=numbers.cap).masked_fill(in_direction > numbers.divergence, 0.0)


OPTIONS: dict[str, ImportanceWeight] = {
    "none": uncorrected,
    "tis": truncated,
    "ppo_clip": ppo_clip,
    "icepop": icepop,
    "dppo_mask": dppo_mask,
}


def importance_weights(logprobs: Tensor, sampler: Tensor, advantages: Tensor, settings: ImportanceSettings) -> Tensor:
    """(N,) what each sampled token counts, a constant to the gradient; all inputs are (N,). Raises ValueError where a function of somebody
    else gives anything but (N,) finite numbers of at least 0."""
    chosen = OPTIONS.get(settings.kind)
    if chosen is not None:
        return chosen(logprobs.detach(), sampler, advantages, settings)
    weights = custom_weight(settings.kind)(logprobs.detach(), sampler, advantages, settings).detach()
    if weights.shape != logprobs.shape:
        raise ValueError(
            f"{settings.kind} gave weights of shape {tuple(weights.shape)}; one a token is needed, {tuple(logprobs.shape)}"
        )
    if len(weights) and not (weights.isfinite().all() and (weights >= 0).all()):
        raise ValueError(f"{settings.kind} gave a weight that is negative or not finite: {weights.min().item():g}")
    return weights


@cache
def custom_weight(path: str) -> ImportanceWeight:
    """The function at an import path. Raises PluginError."""
    found: Any = import_object(path)
    if not callable(found):
        raise PluginError(f"{path} is {type(found).__name__}; an importance weight is a function (docs/extending.md)")
    return cast(ImportanceWeight, found)


class ImportanceStatistics:
    """Figures over a step's tokens: the shares that were dropped or capped, the mean weight, how far the ratios are from 1."""

    def __init__(self, tokens: int = 0, sums: Tensor | None = None) -> None:
        self.tokens = tokens
        self.sums = torch.zeros(4, dtype=torch.float64) if sums is None else sums

    @classmethod
    def merged(cls, parts: Sequence[tuple[int, Tensor]]) -> ImportanceStatistics:
        """The statistics over all ranks, from (tokens, sums) of each."""
        return cls(sum(tokens for tokens, _ in parts), torch.stack([sums for _, sums in parts]).sum(0))

    def add(self, weights: Tensor, logprobs: Tensor, sampler: Tensor) -> None:
        """Adds one micro-batch; all (N,)."""
        ratios = (logprobs.detach() - sampler).double().exp()
        exact = weights.double()
        parts = (exact == 0, (exact > 0) & (exact < ratios * (1 - 1e-6)), exact, (ratios - 1).square())
        self.tokens += len(exact)
        self.sums += torch.stack([part.double().sum() for part in parts]).cpu()

    def figures(self) -> dict[str, float]:
        """Shares and means; `ratio_chi2` is the mean of (r - 1)^2, the chi-square divergence of the trainer from the sampler."""
        if not self.tokens:
            return {}
        dropped, capped, weight, chi2 = (self.sums / self.tokens).tolist()
        return {"trust_dropped": dropped, "trust_cut": capped, "trust_weight": weight, "ratio_chi2": chi2}
