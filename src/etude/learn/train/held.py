"""Held-out documents of the corpus' shards, with the bytes they were: what checkpoints are judged by."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from etude.learn.corpus.shards import TokenShards
from etude.learn.model.causal_lm import CausalLM
from etude.learn.train.evaluate import evaluate

Decode = Callable[[list[int]], str]


@dataclass(frozen=True)
class Held:
    """Token ids of each document, and the bytes of all together."""

    documents: tuple[np.ndarray, ...] = ()
    total_bytes: int = 0

    @classmethod
    def of(cls, shards: TokenShards, decode: Decode, most: int, longest: int) -> Held:
        """At most `most` documents, spread evenly over the folder, the first `longest` tokens of each: the same whenever it is asked."""
        chosen = np.unique(np.linspace(0, len(shards) - 1, min(most, len(shards))).round().astype(int))
        found = (shards.document(int(number))[:longest].astype(np.int64) for number in chosen)
        documents = tuple(ids for ids in found if len(ids) > 1)
        return cls(documents, sum(len(decode(ids.tolist()).encode()) for ids in documents))

    def __add__(self, other: Held) -> Held:
        return Held(self.documents + other.documents, self.total_bytes + other.total_bytes)

    def bits_per_byte(self, model: CausalLM, window: int) -> float:
        """In windows of so many tokens. Raises ValueError without a document."""
        found = evaluate(model, self.documents, self.total_bytes, window)  # type: ignore[arg-type]
        if found is None:
            raise ValueError("no document is held out: there is nothing to judge by")
        return found.bits_per_byte
