"""The model over slots: prompts in, one token per row out, everything recorded in `Rows`. Knows no requests.

The decode step is the engine's hot path: apart from `model.extend` it is a dozen small tensor operations for all rows.
"""

from __future__ import annotations

import torch
from torch import Tensor

from etude.engine.rows import Batch, Rows
from etude.engine.sampling import sample
from etude.model.cache import KVCache
from etude.model.causal_lm import CausalLM


class Forward:
    """Reads and writes the cache and the rows of one engine."""

    def __init__(self, model: CausalLM, cache: KVCache, rows: Rows) -> None:
        self.model, self.cache, self.rows = model, cache, rows
        self.device = model.embed.weight.device
        self._ones = torch.ones(cache.slots, dtype=torch.long)

    def prefill(self, slots: list[int], ends: list[int], *, keep_routes: bool) -> Tensor:
        """Forward each slot's tokens from where its cache ends up to `ends`; logits (B, V) after the last.

        `keep_routes` records the experts of these tokens.
        """
        index = torch.tensor(slots, dtype=torch.long)
        starts = self.cache.lengths[index]  # (B,)
        counts = torch.tensor(ends, dtype=torch.long) - starts
        steps = torch.arange(int(counts.max()))  # (Tn,)
        valid = steps < counts.unsqueeze(1)  # (B, Tn)
        places = (index * self.rows.max_len + starts).unsqueeze(1) + steps
        # Past a row's end any id will do, the model drops it; staying inside the tensor is all that matters.
        ids = self.rows.ids[places.clamp_(max=len(self.rows.ids) - 1)]
        logits, routes = self.model.extend(ids.to(self.device), counts, index, self.cache)
        if keep_routes:
            self.rows.routes[places[valid]] = routes.cpu()[valid]
        return logits

    def decode(self, batch: Batch, version: int) -> Tensor:
        """Forward each row's last token and sample the next: (B,) bool, which rows are done."""
        ids = batch.last.unsqueeze(1).to(self.device)
        logits, routes = self.model.extend(ids, self._ones[: len(batch)], batch.slots, self.cache)
        self.rows.routes.index_copy_(0, batch.places - 1, routes[:, 0].cpu())
        return self.draw(logits, batch, version)

    def draw(self, logits: Tensor, batch: Batch, version: int) -> Tensor:
        """Sample a token per row, write it to `batch.places`, step the batch on; which rows are done."""
        rows, places = self.rows, batch.places
        ids, logprobs = sample(logits.cpu(), rows.noise[places], batch.temperature, batch.top_p)
        rows.ids.index_copy_(0, places, ids)
        rows.logprobs.index_copy_(0, places, logprobs)
        rows.versions.index_fill_(0, places, version)
        done = (places >= batch.end) | (ids.unsqueeze(1) == batch.stops).any(1)
        batch.last = ids
        batch.places = places + 1
        return done
