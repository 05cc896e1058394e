"""The model over slots: prompts in, one token per row out, everything recorded in `TokenRows`. Knows no requests.

The decode step is the engine's hot path: apart from `model.extend` it is a dozen small tensor operations for all rows.
"""

from __future__ import annotations

import torch
from torch import Tensor

from etude.learn.engine.rows import StepBatch, TokenRows
from etude.learn.engine.sampling import distribution, sample
from etude.learn.model.cache import KVCache
from etude.learn.model.causal_lm import CausalLM


class Forward:
    """Reads and writes the cache and the rows of one engine."""

    def __init__(self, model: CausalLM, cache: KVCache, rows: TokenRows) -> None:
        self.model, self.cache, self.rows = model, cache, rows
        self.device = model.embed.weight.device
        self._ones = torch.ones(cache.slots, dtype=torch.long)
        self.broken: frozenset[int] = frozenset()  # slots whose last token came from logits that are not finite

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
        logits, routes = self._extend(ids, counts, index, places, valid)
        if keep_routes:
            self.rows.routes[places[valid]] = routes.cpu()[valid]
        return logits

    def decode(self, batch: StepBatch, version: int) -> Tensor:
        """Forward each row's last token and sample the next: (B,) bool, which rows are done."""
        logits, routes = self._extend(
            batch.last.unsqueeze(1), self._ones[: len(batch)], batch.slots, batch.places.unsqueeze(1) - 1, None
        )
        self.rows.routes.index_copy_(0, batch.places - 1, routes[:, 0].cpu())
        return self.draw(logits, batch, version)

    def draw(self, logits: Tensor, batch: StepBatch, version: int) -> Tensor:
        """Sample a token per row, write it to `batch.places`, step the batch on; which rows are done, broken ones among them."""
        rows, places, logits = self.rows, batch.places, logits.cpu()
        ids, logprobs = sample(logits, rows.noise[places], batch.temperature, batch.top_p)
        rows.ids.index_copy_(0, places, ids)
        rows.logprobs.index_copy_(0, places, logprobs)
        rows.versions.index_fill_(0, places, version)
        broken = logprobs.isnan()
        if batch.top is not None:
            settings = (None if x is None else x[batch.top] for x in (batch.temperature, batch.top_p))
            rows.keep_top(places[batch.top], distribution(logits[batch.top], *settings))
        done = (places >= batch.end) | batch.over(ids) | broken
        self.broken = frozenset(batch.slots[broken].tolist())
        batch.last = ids
        batch.places = places + 1
        return done

    def verify(self, batch: StepBatch, drafts: Tensor, version: int) -> tuple[Tensor, Tensor]:
        """Forward each row's last token and `drafts` (B, k) behind it; the tokens (B, k + 1) drawn after each of them, and which of
        them came from logits that are not finite.

        They count as far as the drafts before them are right: the caller cuts the cache and steps the batch on. What is
        recorded beyond is written over by the steps that follow.
        """
        rows, width = self.rows, drafts.shape[1] + 1
        ids = torch.cat((batch.last.unsqueeze(1), drafts), dim=1)
        counts = torch.full_like(batch.slots, width)
        out = self.model.extend_all(ids.to(self.device), counts, batch.slots, self.cache)
        places = (batch.places.unsqueeze(1) + torch.arange(width)).flatten()  # (B * (k + 1),)
        assert out.routes is not None and rows.hidden is not None
        rows.routes.index_copy_(0, places - 1, out.routes.flatten(0, 1).cpu())
        rows.hidden.index_copy_(0, (places - 1).to(self.device), out.hidden.flatten(0, 1))
        wide = (None if x is None else x.repeat_interleave(width) for x in (batch.temperature, batch.top_p))
        tokens, logprobs = sample(out.logits.flatten(0, 1).cpu(), rows.noise[places], *wide)
        rows.ids.index_copy_(0, places, tokens)
        rows.logprobs.index_copy_(0, places, logprobs)
        rows.versions.index_fill_(0, places, version)
        return tokens.view(-1, width), logprobs.isnan().view(-1, width)

    def wipe(self, slot: int, start: int = 0) -> None:
        """Nothing that is not finite stays in the slot from position `start` on."""
        self.cache.wipe(slot, start)
        if self.rows.hidden is not None:
            self.rows.hidden[self.rows.place(slot, start) : self.rows.place(slot + 1)] = 0

    def _extend(
        self, ids: Tensor, counts: Tensor, slots: Tensor, places: Tensor, valid: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Logits (B, V) after the last of ids (B, Tn), and routes; hidden states go to `places` (B, Tn) if they are kept.

        `valid` (B, Tn) says what is no padding; None that nothing is.
        """
        if self.rows.hidden is None:
            return self.model.extend(ids.to(self.device), counts, slots, self.cache)
        out = self.model.extend_all(ids.to(self.device), counts, slots, self.cache, every_logit=False)
        assert out.routes is not None
        there, hidden = (
            (places.flatten(), out.hidden.flatten(0, 1))
            if valid is None
            else (places[valid], out.hidden[valid.to(self.device)])
        )
        self.rows.hidden.index_copy_(0, there.to(self.device), hidden)
        return out.logits, out.routes
