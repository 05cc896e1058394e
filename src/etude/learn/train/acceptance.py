"""How often drafts would be accepted, measured on given texts: no sampling, every place of a text is one draft of every depth.

Three rules, each per depth and by the place of the drafted token in its text:

- `greedy`: draft and target name the same likeliest token. What speculative decoding accepts at temperature 0.
- `overlap`: 1 - total variation distance, the sum of min(p, q). The ceiling: what rejection sampling accepts at the run's
  temperature (Leviathan et al. 2023, arXiv 2211.17192, section 3), and no rule that keeps the target's distribution accepts more.
- `coupled`: the share of random numbers in [0, 1) for which the inverse cumulative distributions of both, over the vocabulary in
  order, give the same token. What an engine accepts that draws both with one number (see `engine.sampling`).

Rates of depth 2 and beyond are those after drafts that agreed with the text, as deeper drafts count only then.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from etude.learn.model.causal_lm import CausalLM
from etude.learn.train.batch import like_lengths, padded_batch
from etude.learn.train.losses import chunk_positions
from etude.learn.train.self_distillation import draft_states, draft_weights

RULES = ("greedy", "overlap", "coupled")
# Padded tokens of one forward: activations of a wide model stay below a few hundred MiB.
BATCH_TOKENS = 8192
# Where buckets of positions begin; the last one is open.
POSITIONS = (0, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072)
RESAMPLES = 2000


@dataclass(frozen=True)
class Acceptance:
    """Of one depth: `sums` (S, R, P) accepted drafts of each text by rule and bucket of positions, `counts` (S, P) of drafts."""

    depth: int
    sums: np.ndarray
    counts: np.ndarray

    @property
    def rates(self) -> dict[str, float]:
        """By rule, over all drafts."""
        return dict(zip(RULES, (self.sums.sum((0, 2)) / self.counts.sum()).tolist(), strict=True))

    @property
    def by_position(self) -> dict[int, dict[str, float]]:
        """The same by the first position of a bucket, with the number of drafts in it; empty buckets are left out."""
        counts, sums = self.counts.sum(0), self.sums.sum(0)  # (P,), (R, P)
        return {
            POSITIONS[p]: {"drafts": int(counts[p]), **dict(zip(RULES, (sums[:, p] / counts[p]).tolist(), strict=True))}
            for p in range(len(POSITIONS))
            if counts[p]
        }

    def ci95(self, seed: int = 0) -> dict[str, tuple[float, float]]:
        """95% interval of each rate, by a bootstrap over texts."""
        sums, counts = self.sums.sum(2), self.counts.sum(1)  # (S, R), (S,)
        drawn = np.random.default_rng(seed).integers(0, len(counts), (RESAMPLES, len(counts)))
        rates = sums[drawn].sum(1) / counts[drawn].sum(1)[:, None]  # (RESAMPLES, R)
        low, high = np.nanpercentile(rates, [2.5, 97.5], axis=0)
        return {rule: (float(low[r]), float(high[r])) for r, rule in enumerate(RULES)}


def tokens_per_pass(depths: Sequence[Acceptance], rule: str) -> float:
    """Mean tokens that one pass of the target gives with these drafts: its own, and as many as are accepted in a row."""
    return 1.0 + sum(itertools.accumulate((d.rates[rule] for d in depths), lambda a, b: a * b))


@torch.inference_mode()
def measure_acceptance(
    model: CausalLM, texts: Iterable[tuple[ArrayLike, ArrayLike]], temperature: float
) -> list[Acceptance]:
    """One entry a depth. A text is its tokens and which of them count as drafted (in a session those the policy sampled).

    Raises ValueError for a model without draft layers, a text beyond its rope, or texts without a token to draft.
    """
    held = [(np.asarray(ids, np.int64), np.asarray(counted, np.float32)) for ids, counted in texts]
    longest = max((len(ids) for ids, _ in held), default=0)
    if longest > model.config.context_length:
        raise ValueError(
            f"a text of {longest} tokens, but the checkpoint's positions end at {model.config.context_length}: cut it"
        )
    depths = model.config.mtp_layers
    sums = np.zeros((depths, len(held), len(RULES), len(POSITIONS)))
    counts = np.zeros((depths, len(held), len(POSITIONS)), np.int64)
    for numbers in like_lengths([len(ids) for ids, _ in held], BATCH_TOKENS):
        batch = padded_batch([held[n][0] for n in numbers], [held[n][1] for n in numbers])
        batch = batch.to(model.embed.weight.device)
        mask = batch.mask()
        hidden = model(batch.ids, mask, logits_at=torch.zeros_like(batch.real)).hidden
        for depth, (states, _) in enumerate(draft_states(model, hidden, batch.ids, mask), 1):
            at = draft_weights(batch.weights, mask, depth) > 0  # (B, T)
            accepted = _accepted(model, states[at], mask.ahead(hidden, depth)[at], temperature)  # (R, N)
            rows, places = (index.numpy() for index in at.cpu().nonzero(as_tuple=True))
            bucket = np.searchsorted(POSITIONS, places + depth + 1, side="right") - 1
            owner = np.asarray(numbers)[rows]
            np.add.at(counts[depth - 1], (owner, bucket), 1)
            for r in range(len(RULES)):
                np.add.at(sums[depth - 1, :, r], (owner, bucket), accepted[r].double().cpu().numpy())
    if not counts.sum(axis=(1, 2)).all():
        raise ValueError(f"{len(held)} texts hold no token to draft at every depth up to {depths}")
    return [Acceptance(d + 1, sums[d], counts[d]) for d in range(depths)]


def _accepted(model: CausalLM, drafts: Tensor, targets: Tensor, temperature: float) -> Tensor:
    """(R, N) probability of acceptance by each rule, from the heads' inputs (N, H)."""
    size = chunk_positions(drafts, model.head)
    parts = zip(drafts.split(size), targets.split(size), strict=True)
    return torch.cat([acceptance_probability(model.head(q), model.head(p), temperature) for q, p in parts], -1)


def acceptance_probability(drafts: Tensor, targets: Tensor, temperature: float) -> Tensor:
    """(R, N) probability that a draft is accepted under each of RULES, from logits (N, V) of both. At temperature 0 all are one."""
    same = (drafts.argmax(-1) == targets.argmax(-1)).double()
    if temperature <= 0:
        return same.expand(len(RULES), -1)
    q, p = ((logits.double() / temperature).softmax(-1) for logits in (drafts, targets))
    upto_q, upto_p = q.cumsum(-1), p.cumsum(-1)
    shared = torch.minimum(upto_q, upto_p) - torch.maximum(upto_q - q, upto_p - p)  # of the two intervals of a token
    return torch.stack((same, torch.minimum(p, q).sum(-1), shared.clamp(min=0).sum(-1)))
