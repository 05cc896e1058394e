"""What the trainer computes of a batch of rollouts before it learns from it: each rank's part, and all of them together.

The mismatch says how far the trainer's logprobs are from those that the sampler reported. With r = p_trainer / p_sampler: k3 = (r - 1) - log r, whose
mean estimates KL(sampler || trainer) and is 0 only if all agree; and the 99th percentile of |log r|, which a flipped expert shows first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from etude.core.trace.segment import Rollout
from etude.learn.train.balance import RankRows, Row
from etude.learn.train.replay import ReplayCounts
from etude.learn.train.rollout_batch import RolloutBatch, by_segment, sampler_logprobs


@dataclass
class RankScores:
    """One rank's rows: values (M,) over their sampled tokens. Goes to the other ranks as plain tensors and numbers."""

    current: Tensor
    entropy: Tensor
    reference: Tensor | None
    unreplayed: Tensor | None
    replay: tuple[int, int, int]
    load: Tensor | None  # (L_moe, E) expert choices
    forwarded: int  # tokens that ran
    places: Tensor | None = (
        None  # (M,) where ranks share rows: the place of each among the sampled tokens of all of them
    )
    shared: int = 0  # how many these are


@dataclass
class BatchScores:
    """Of the whole batch, the same on every rank. Arrays are (T_i,) a segment, 0 where not sampled."""

    step: int  # the trainer's step these were computed at; an update refuses older ones
    current: list[list[np.ndarray]]  # [rollout][segment] logprobs under the current weights, experts replayed
    reference: list[list[np.ndarray]] | None  # the same under the reference model; None without one
    unreplayed: (
        list[list[np.ndarray]] | None
    )  # the same as `current` with the trainer's own experts; None where not asked for
    mismatch: Mismatch
    mismatch_unreplayed: Mismatch | None
    entropy: float  # mean over sampled tokens, nats
    replay: ReplayCounts
    forwarded: int
    imbalance: float  # of the ranks, by expected cost
    load: Tensor | None = field(repr=False, default=None)  # (L_moe, E) expert choices
    batches: list[RolloutBatch] = field(repr=False, default_factory=list)  # this rank's
    graphs: list[Tensor] = field(repr=False, default_factory=list)  # logprobs (M,) with graph, one a batch; or empty


def of_rows(parts: Sequence[RankScores], context: int) -> list[RankScores]:
    """By group of `context` neighbouring ranks, which share the tokens of the same rows, one part of these rows."""
    if context == 1:
        return list(parts)
    return [_of_group(parts[first : first + context]) for first in range(0, len(parts), context)]


def _of_group(parts: Sequence[RankScores]) -> RankScores:
    def whole(values: Sequence[Tensor | None]) -> Tensor | None:
        out = torch.zeros(parts[0].shared)
        for part, value in zip(parts, values, strict=True):
            if value is None or part.places is None:
                return None
            out[part.places] = value
        return out

    current, entropy = whole([part.current for part in parts]), whole([part.entropy for part in parts])
    assert current is not None and entropy is not None
    loads = [part.load for part in parts if part.load is not None]
    first, second, third = (sum(counts) for counts in zip(*(part.replay for part in parts), strict=True))
    return RankScores(
        current,
        entropy,
        whole([part.reference for part in parts]),
        whole([part.unreplayed for part in parts]),
        (first, second, third),
        torch.stack(loads).sum(0) if loads else None,
        sum(part.forwarded for part in parts),
    )


def places_of(batches: Sequence[RolloutBatch]) -> tuple[Tensor | None, int]:
    """`places` and `shared` of batches one behind the other."""
    if not batches or batches[0].places is None:
        return None, 0
    before, places = 0, []
    for batch in batches:
        assert batch.places is not None
        places.append(batch.places + before)
        before += batch.shared
    return torch.cat(places), before


def together(
    step: int,
    rollouts: Sequence[Rollout],
    dealt: RankRows,
    parts: Sequence[RankScores],
    batches: list[RolloutBatch],
    graphs: list[Tensor],
) -> BatchScores:
    """`parts` by rank; `batches` and `graphs` are this rank's own, for the update."""
    rows = [row for share in dealt.rows for row in share]
    current, entropy = torch.cat([part.current for part in parts]), torch.cat([part.entropy for part in parts])
    loads = [part.load for part in parts if part.load is not None]
    sampled = [sampler_logprobs(rollouts, rows)]
    plain = [part.unreplayed for part in parts if part.unreplayed is not None]
    return BatchScores(
        step=step,
        current=by_segment(rollouts, rows, current),
        reference=_by_segment(rollouts, rows, [part.reference for part in parts]),
        unreplayed=_by_segment(rollouts, rows, [part.unreplayed for part in parts]),
        mismatch=Mismatch.of([current], sampled) if rows else Mismatch.of([], []),
        mismatch_unreplayed=Mismatch.of([torch.cat(plain)], sampled) if plain and rows else None,
        entropy=float(entropy.mean()),
        replay=ReplayCounts(*(sum(counts) for counts in zip(*(part.replay for part in parts), strict=True))),
        forwarded=sum(part.forwarded for part in parts),
        imbalance=dealt.imbalance,
        load=torch.stack(loads).sum(0) if loads else None,
        batches=batches,
        graphs=graphs,
    )


def _by_segment(
    rollouts: Sequence[Rollout], rows: Sequence[Row], parts: Sequence[Tensor | None]
) -> list[list[np.ndarray]] | None:
    """What all ranks have, or none."""
    held = [part for part in parts if part is not None]
    return by_segment(rollouts, rows, torch.cat(held)) if held else None


def flat(values: Sequence[Tensor]) -> Tensor:
    """(M,) float32 on the CPU, also of none: a rank may have nothing to do."""
    return torch.cat([torch.zeros(0), *(part.cpu() for part in values)])


@dataclass(frozen=True)
class Mismatch:
    """Over all sampled tokens; nan if there were none."""

    k3: float
    p99: float

    @classmethod
    def of(cls, trainer: Sequence[Tensor], sampler: Sequence[Tensor]) -> Mismatch:
        """Of matching lists of (N,) logprobs on the CPU. float64: k3 of two fp32 numbers that nearly agree is all rounding. The percentile is
        numpy's, which has no largest size; torch refuses more than 2^24 values."""
        if not trainer:
            return cls(float("nan"), float("nan"))
        log_r = torch.cat(list(trainer)).double() - torch.cat(list(sampler)).double()
        k3 = torch.where(log_r.isposinf(), log_r, torch.expm1(log_r) - log_r)  # infinity minus infinity is no number
        with np.errstate(invalid="ignore"):  # of a token that the sampler gave probability 0
            return cls(float(k3.mean()), float(np.quantile(log_r.abs().numpy(), 0.99)))
