"""Guessing the next tokens with the model's draft layers (DeepSeek-V3, arXiv 2412.19437, section 2.2).

Draft layer d (from 0) at position i reads the hidden state of layer d - 1 there (of the trunk for d = 0) and token
i + 1 + d, and predicts token i + 2 + d. Its keys and values lie in the cache's layer `config.layers + d`. An entry is final
once its tokens are; `_reach` counts, per slot, the entries that are final in all draft layers. Whatever else lies there is
computed again before it is read: after a rejection nothing needs to be taken back.

So a proposal begins by bringing the layers from `_reach` to the last forwarded position, in one call a layer for all rows.
Deeper than the model has layers, the last one goes on from its own output, one position further each time, as EAGLE does
(arXiv 2401.15077).
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from etude.engine.grouping import grouped
from etude.engine.rows import Batch, Rows
from etude.engine.sampling import sample
from etude.model.cache import KVCache, Span
from etude.model.causal_lm import CausalLM
from etude.model.mtp import MtpLayer


class Drafter(Protocol):
    """Whoever guesses. A wrong guess costs time, never correctness."""

    def propose(self, batch: Batch, count: int) -> Tensor:
        """Guesses (B, count) of the tokens at `batch.places` and after; also written to the rows' ids there."""
        ...

    def keep(self, slot: int, length: int) -> None:
        """From position `length` on the slot gets other tokens."""
        ...

    def copy(self, source: int, target: int, length: int) -> None:
        """The cache's first `length` tokens of `source`, draft layers included, were copied to `target`."""
        ...

    def clear(self) -> None:
        """Forget everything computed so far: the trunk's hidden states are new."""
        ...


class LayerDrafter:
    """Draws each guess from the draft's distribution with the very random number that the token itself will be drawn with,
    at the request's temperature and top-p: the closer the two distributions, the likelier the two draws agree."""

    def __init__(self, model: CausalLM, cache: KVCache, rows: Rows, draft_tokens: int) -> None:
        """Of more layers than `draft_tokens` the deeper ones are not run. Raises ValueError if the model has none."""
        if not model.config.mtp_layers:
            raise ValueError(
                f"engine.draft_tokens is {draft_tokens}, but the model has no draft layers: load a checkpoint that has some "
                "(the mtp stage trains them) with drafts=True, or set engine.draft_tokens to 0"
            )
        self._model, self._cache, self._rows = model, cache, rows
        self._layers: list[MtpLayer] = list(model.mtp)[:draft_tokens]  # type: ignore[arg-type]
        self._device = model.embed.weight.device
        self._reach = torch.zeros(cache.slots, dtype=torch.long)

    def propose(self, batch: Batch, count: int) -> Tensor:
        slots, depths, ids = batch.slots, len(self._layers), self._rows.ids
        held = self._cache.lengths[slots]  # (B,)
        # All windows end at the last position, so rows that lag less compute a few entries again, to the same values.
        width = min(int((held - self._reach[slots]).max()), int(held.min()), count + depths)
        self._catch_up(slots, held - width)
        span = self._span(slots, held - width, torch.full_like(slots, width))
        hidden = self._hidden(span)
        for depth in range(count):
            if depth >= depths:
                span = self._span(slots, held + (depth - depths), torch.ones_like(slots))
            hidden = self._deeper(min(depth, depths - 1), hidden, span)
            last = hidden if span.width == 1 else hidden[span.last]  # (B, H)
            hidden = last if depth >= depths - 1 else hidden
            ids[batch.places + depth] = self._draw(last, batch, depth)
        if count >= depths:  # else the deeper layers have not run
            self._reach[slots] = (held - depths + 1).clamp_(min=0)
        return ids[batch.places.unsqueeze(1) + torch.arange(count)]

    def keep(self, slot: int, length: int) -> None:
        # The deepest layer's entry i has read token i + depths.
        self._reach[slot] = min(int(self._reach[slot]), max(0, length - len(self._layers)))

    def copy(self, source: int, target: int, length: int) -> None:
        self._reach[target] = self._reach[source]
        self.keep(target, length)

    def clear(self) -> None:
        self._reach.zero_()

    def _catch_up(self, slots: Tensor, goal: Tensor) -> None:
        """Entries from `_reach` up to `goal` (B,), where there are any: prompts, and what plain decoding has sampled."""
        behind = {
            slot: (reach, end)
            for slot, reach, end in zip(slots.tolist(), self._reach[slots].tolist(), goal.tolist(), strict=True)
            if reach < end
        }
        for group in grouped(behind, lambda slot: behind[slot][1] - behind[slot][0]):
            reach, end = torch.tensor([behind[slot] for slot in group]).unbind(1)
            span = self._span(torch.tensor(group), reach, end - reach)
            hidden = self._hidden(span)
            for depth in range(len(self._layers)):
                hidden = self._deeper(depth, hidden, span)

    def _span(self, slots: Tensor, before: Tensor, counts: Tensor) -> Span:
        return Span(self._cache, slots, counts, int(counts.max()), before)

    def _hidden(self, span: Span) -> Tensor:
        """The trunk's output (N, H) at the span's positions."""
        assert self._rows.hidden is not None
        return self._rows.hidden.index_select(0, span.write)

    def _deeper(self, depth: int, hidden: Tensor, span: Span) -> Tensor:
        """Layer `depth` over the span: (N, H) to (N, H)."""
        # Only entries that are computed again later can look past the slots' end; which token they see does not matter.
        places = (span.write.cpu() + 1 + depth).clamp_(max=len(self._rows.ids) - 1)
        embedded = self._model.embed(self._rows.ids[places].to(self._device))
        return self._layers[depth].extend(hidden, embedded, self._model.rope.at(span.positions), span)

    def _draw(self, hidden: Tensor, batch: Batch, depth: int) -> Tensor:
        """The guess (B,) at `batch.places + depth` from hidden (B, H)."""
        logits = self._model.head(hidden).cpu()
        return sample(logits, self._rows.noise[batch.places + depth], batch.temperature, batch.top_p)[0]
