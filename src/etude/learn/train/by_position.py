"""Loss by position: how well a token is predicted, by how much of its document precedes it.

Where context helps, the loss falls towards the end of the window; where positions are beyond what a model has learnt, it rises.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from etude.learn.model.causal_lm import CausalLM
from etude.learn.train.batch import padded_batch, predicting_states
from etude.learn.train.losses import token_logprobs

# Tokens of one forward pass, as windows side by side: the activations of a wide model stay below a few hundred MiB.
BATCH_TOKENS = 8192
RESAMPLES = 2000
FIRST = 16  # positions of the first bucket; each further one ends at twice the position


@dataclass(frozen=True)
class LossByPosition:
    """Buckets of positions [edges[i], edges[i + 1]). `nats` and `counts` (D, buckets) are summed a document."""

    edges: tuple[int, ...]
    nats: np.ndarray
    counts: np.ndarray

    def rows(self) -> list[dict[str, float | int | list[float]]]:
        """The mean loss of a bucket in nats a token, with its 95% interval, by a bootstrap over documents."""
        drawn = np.random.default_rng(0).integers(0, len(self.nats), (RESAMPLES, len(self.nats)))
        out: list[dict[str, float | int | list[float]]] = []
        for bucket, (start, stop) in enumerate(zip(self.edges, self.edges[1:], strict=False)):
            nats, counts = self.nats[:, bucket], self.counts[:, bucket]
            # A draw without a single document that reaches so far says nothing about the bucket.
            sums, tokens = nats[drawn].sum(1), counts[drawn].sum(1)
            low, high = np.percentile(sums[tokens > 0] / tokens[tokens > 0], [2.5, 97.5])
            loss = float(nats.sum() / counts.sum())
            out.append({"from": start, "to": stop, "loss": loss, "ci95": [float(low), float(high)]})
        return out


def edges(length: int) -> tuple[int, ...]:
    """1, 16, 32, 64 … length: position 0 has nothing before it and is not predicted."""
    found = [1]
    step = FIRST
    while step < length:
        found.append(step)
        step *= 2
    return (*found, length)


@torch.inference_mode()
def loss_by_position(model: CausalLM, documents: Iterable[Sequence[int]], length: int) -> LossByPosition:
    """Windows of `length` tokens, one after the other, of documents that hold one at least; what is left at an end is not read.

    Raises ValueError if none is as long, and for more positions than the model has.
    """
    bounds = edges(length)
    held = [np.asarray(document, np.int64) for document in documents if len(document) >= length]
    if not held:
        raise ValueError(f"no held-out document has {length} tokens: hold out more, or measure at a shorter length")
    windows = [(n, d[s : s + length]) for n, d in enumerate(held) for s in range(0, len(d) - length + 1, length)]
    nats, counts = np.zeros((len(held), length)), np.zeros(len(held))
    together = max(1, BATCH_TOKENS // length)
    for first in range(0, len(windows), together):
        chosen = windows[first : first + together]
        batch = padded_batch([ids for _, ids in chosen], [np.ones(length, np.float32)] * len(chosen))
        out = model(batch.ids, batch.mask(), logits_at=torch.zeros_like(batch.real))
        hidden, targets = predicting_states(out.hidden, batch.ids, batch.real)
        found = -token_logprobs(hidden, targets, model.head).double().view(len(chosen), length - 1).numpy()
        for (owner, _), row in zip(chosen, found, strict=True):
            nats[owner, 1:] += row
            counts[owner] += 1
    sums = np.stack([nats[:, a:b].sum(1) for a, b in zip(bounds, bounds[1:], strict=False)], 1)
    widths = np.diff(bounds)
    return LossByPosition(bounds, sums, counts[:, None] * widths)
