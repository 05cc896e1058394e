"""Perplexity on held-out documents of the corpus' shards, as bits per byte: comparable between tokenizers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from etude.learn.corpus.shards import TokenShards
from etude.learn.model.causal_lm import CausalLM
from etude.learn.train.batch import padded_batch, predicting_states
from etude.learn.train.losses import token_logprobs

# Windows of one batch: 16 x 256 tokens keep the activations of a wide model below a few hundred MiB.
WINDOWS_PER_BATCH = 16


@dataclass(frozen=True)
class Evaluation:
    """`loss` in nats a token. The first token of a window has no context and is not counted, nor are its bytes lost."""

    loss: float
    bits_per_byte: float
    tokens: int


@torch.inference_mode()
def evaluate(
    model: CausalLM, documents: Iterable[Sequence[int]], total_bytes: int, window_tokens: int = 256
) -> Evaluation | None:
    """Documents are token ids, cut into windows, of `total_bytes` of text. None if there is nothing to predict."""
    windows: list[np.ndarray] = []
    for ids in documents:
        array = np.asarray(ids, np.int64)
        # Windows overlap by one token, so that every token but a document's first is predicted once.
        starts = range(0, max(len(array) - 1, 1), window_tokens - 1)
        windows += [w for s in starts if len(w := array[s : s + window_tokens]) > 1]
    if not windows or not total_bytes:
        return None
    windows.sort(key=len)
    nats, tokens = 0.0, 0
    for start in range(0, len(windows), WINDOWS_PER_BATCH):
        rows = windows[start : start + WINDOWS_PER_BATCH]
        batch = padded_batch(rows, [np.ones(len(row), np.float32) for row in rows]).to(model.embed.weight.device)
        out = model(batch.ids, batch.mask(), logits_at=torch.zeros_like(batch.real))
        hidden, targets = predicting_states(out.hidden, batch.ids, batch.real)
        nats -= float(token_logprobs(hidden, targets, model.head).sum())
        tokens += len(targets)
    return Evaluation(nats / tokens, nats / math.log(2) / total_bytes, tokens)


Decode = Callable[[list[int]], str]


@dataclass(frozen=True)
class HeldOutTexts:
    """Token ids of each document, and the bytes of all together."""

    documents: tuple[np.ndarray, ...] = ()
    total_bytes: int = 0

    @classmethod
    def of(cls, shards: TokenShards, decode: Decode, most: int, longest: int) -> HeldOutTexts:
        """At most `most` documents, spread evenly over the folder, the first `longest` tokens of each: the same whenever it is asked."""
        chosen = np.unique(np.linspace(0, len(shards) - 1, min(most, len(shards))).round().astype(int))
        found = (shards.document(int(number))[:longest].astype(np.int64) for number in chosen)
        documents = tuple(ids for ids in found if len(ids) > 1)
        return cls(documents, sum(len(decode(ids.tolist()).encode()) for ids in documents))

    def __add__(self, other: HeldOutTexts) -> HeldOutTexts:
        return HeldOutTexts(self.documents + other.documents, self.total_bytes + other.total_bytes)

    def bits_per_byte(self, model: CausalLM, window: int) -> float:
        """In windows of `window_tokens`. Raises ValueError without a document."""
        found = evaluate(model, self.documents, self.total_bytes, window)  # type: ignore[arg-type]
        if found is None:
            raise ValueError("no document is held out: there is nothing to judge by")
        return found.bits_per_byte
