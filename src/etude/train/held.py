"""Held-out documents of the corpus' shards, with the bytes they were: what checkpoints are judged by."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from etude.corpus.shards import TokenShards
from etude.model.causal_lm import CausalLM
from etude.train.evaluate import evaluate

Decode = Callable[[list[int]], str]


@dataclass(frozen=True)
class Held:
    """Token ids of each document, and the bytes of all together."""

    documents: tuple[np.ndarray, ...]
    total_bytes: int

    @classmethod
    def of(cls, shards: TokenShards, decode: Decode, most: int) -> Held:
        """At most so many documents, spread evenly over the folder: the same ones whenever it is asked."""
        chosen = np.unique(np.linspace(0, len(shards) - 1, min(most, len(shards))).round().astype(int))
        documents = tuple(shards.document(int(number)).astype(np.int64) for number in chosen)
        return cls(documents, sum(len(decode(ids.tolist()).encode()) for ids in documents))

    def __add__(self, other: Held) -> Held:
        return Held(self.documents + other.documents, self.total_bytes + other.total_bytes)

    def bits_per_byte(self, model: CausalLM, window: int) -> float | None:
        """None if there is nothing to predict."""
        found = evaluate(model, self.documents, self.total_bytes, window)  # type: ignore[arg-type]
        return None if found is None else found.bits_per_byte
