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

from etude.learn.engine.grouping import NARROW, group_by_width
from etude.learn.engine.rows import StepBatch, TokenRows
from etude.learn.engine.sampling import sample
from etude.learn.model.cache import CacheSpan, KVCache
from etude.learn.model.causal_lm import CausalLM
from etude.learn.model.mtp import MtpLayer
from etude.learn.model.transformers_backend.config import refuse

# A further guess costs about 0.4 of a forward of a laptop's trunk and brings a token with this chance; a token costs about 0.8 of
# one. Below their ratio the guess is not worth its time.
WORTHWHILE = 0.5


class Drafter(Protocol):
    """A drafter of tokens. A wrong guess costs time, never correctness."""

    def propose(self, batch: StepBatch, count: int) -> Tensor:
        """Guesses (B, k) of the tokens at `batch.places` and after, with k from 1 to `count`. May write to the rows' ids there."""
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

    def __init__(self, model: CausalLM, cache: KVCache, rows: TokenRows, draft_tokens: int) -> None:
        """Of more layers than `draft_tokens` the deeper ones are not run. Raises ValueError if the model has none."""
        refuse(model.config, "engine.draft_tokens")
        if not model.config.mtp_layers:
            raise ValueError(
                f"engine.draft_tokens is {draft_tokens}, but the model has no draft layers: load a checkpoint that has some "
                "(the mtp stage trains them) with drafts=True, or set engine.draft_tokens to 0"
            )
        self._model, self._cache, self._rows = model, cache, rows
        self._layers: list[MtpLayer] = list(model.mtp)[:draft_tokens]  # type: ignore[arg-type]
        self._device = model.embed.weight.device
        self._reach = [0] * cache.slots
        self.tainted: set[int] = set()  # slots where a draft layer gave numbers that are not finite

    def propose(self, batch: StepBatch, count: int) -> Tensor:
        depths, places = len(self._layers), batch.places
        slots, held = batch.slots.tolist(), self._cache.lengths[batch.slots].tolist()
        width = self._width(slots, held, count)
        self._catch_up(slots, [length - width for length in held])
        span = self._span(batch.slots, [length - width for length in held], width)
        hidden, guesses = self._hidden(span), list[Tensor]()
        hopes = [1.0] * len(slots)  # chance that all guesses of a row so far are right, as the drafts see it
        for depth in range(count):
            if depth >= depths:
                span = self._span(batch.slots, [length + depth - depths for length in held], 1)
                hidden = self._layer(depths - 1, hidden, guesses[-1], span)
            else:
                hidden = self._deeper(depth, hidden, span)
            last = hidden if span.width == 1 else hidden[width - 1 :: width]  # (B, H)
            guess, logprob = self._draw(last, batch, places + depth)
            guesses.append(guess)
            hopes = self._hope(hopes, guess, logprob, batch)
            if max(hopes) < WORTHWHILE:
                break
            self._rows.ids[places + depth] = guess  # what the next layer reads
            hidden = last if depth >= depths - 1 else hidden
        self._settle(slots, held, len(guesses), hidden, span)
        return torch.stack(guesses, dim=1)

    def keep(self, slot: int, length: int) -> None:
        if slot in self.tainted:
            self._clean(slot)
        # The deepest layer's entry i has read token i + depths.
        self._reach[slot] = min(self._reach[slot], max(0, length - len(self._layers)))

    def copy(self, source: int, target: int, length: int) -> None:
        self._reach[target] = self._reach[source]
        if source in self.tainted:
            self.tainted.add(target)  # `keep` removes what was copied into the draft layers
        self.keep(target, length)

    def clear(self) -> None:
        self._reach = [0] * len(self._reach)

    def renew(self) -> None:
        """The weights are others: what the former ones left that is not finite goes."""
        for slot in list(self.tainted):
            self._clean(slot)

    def _clean(self, slot: int) -> None:
        self._cache.wipe(slot, layers=slice(self._model.config.layers, None))
        self._reach[slot] = 0
        self.tainted.discard(slot)

    def _width(self, slots: list[int], held: list[int], count: int) -> int:
        """Positions (at least 1 each) that the layers go through for all rows at once, up to the last one forwarded.

        All windows end there, so rows that lag less compute a few entries again, to the same values; rows that lag
        much more than others catch up before.
        """
        lags = [length - self._reach[slot] for slot, length in zip(slots, held, strict=True)]
        widest = max(lags)
        if widest * len(lags) > max(NARROW, 2 * sum(lags)):
            widest = min(widest, count + len(self._layers))
        return min(widest, *held)

    def _catch_up(self, slots: list[int], goal: list[int]) -> None:
        """Entries from `_reach` up to `goal`, where there are any: prompts, and what plain decoding has sampled."""
        behind = {slot: end for slot, end in zip(slots, goal, strict=True) if self._reach[slot] < end}
        for group in group_by_width(behind, lambda slot: behind[slot] - self._reach[slot]):
            reach = torch.tensor([self._reach[slot] for slot in group])
            counts = torch.tensor([behind[slot] for slot in group]) - reach
            span = CacheSpan(self._cache, torch.tensor(group), counts, int(counts.max()), reach)
            hidden = self._hidden(span)
            for depth in range(len(self._layers)):
                hidden = self._deeper(depth, hidden, span)

    def _settle(self, slots: list[int], held: list[int], guesses: int, hidden: Tensor, span: CacheSpan) -> None:
        """Moves `_reach` on if all layers have run; if fewer guesses were asked for, the others follow once enough has piled up."""
        depths = len(self._layers)
        if guesses < depths:
            if span.width < NARROW:
                return
            for depth in range(guesses, depths):
                hidden = self._deeper(depth, hidden, span)
        for slot, length in zip(slots, held, strict=True):
            self._reach[slot] = max(0, length - depths + 1)

    def _hope(self, hopes: list[float], guess: Tensor, logprob: Tensor, batch: StepBatch) -> list[float]:
        """`hopes` with one more guess (B,); behind a stop token there is nothing to guess."""
        certain = logprob.exp().nan_to_num(0.0).tolist()
        ends = batch.over(guess).tolist()
        return [0.0 if end else hope * p for hope, p, end in zip(hopes, certain, ends, strict=True)]

    def _span(self, slots: Tensor, before: list[int], width: int) -> CacheSpan:
        return CacheSpan(self._cache, slots, torch.full_like(slots, width), width, torch.tensor(before))

    def _hidden(self, span: CacheSpan) -> Tensor:
        """The trunk's output (N, H) at the span's positions."""
        assert self._rows.hidden is not None
        return self._rows.hidden.index_select(0, span.write)

    def _deeper(self, depth: int, hidden: Tensor, span: CacheSpan) -> Tensor:
        """Layer `depth` over the span, with the tokens that the rows hold: (N, H) to (N, H)."""
        # Only entries that are computed again later can look past the slots' end; which token they see does not matter.
        places = (span.write.cpu() + (1 + depth)).clamp_(max=len(self._rows.ids) - 1)
        return self._layer(depth, hidden, self._rows.ids[places], span)

    def _layer(self, depth: int, hidden: Tensor, tokens: Tensor, span: CacheSpan) -> Tensor:
        """Layer `depth` over hidden (N, H) and tokens (N,)."""
        embedded = self._model.embed(tokens.to(self._device))
        return self._layers[depth].extend(hidden, embedded, self._model.rope.at(span.positions), span)

    def _draw(self, hidden: Tensor, batch: StepBatch, places: Tensor) -> tuple[Tensor, Tensor]:
        """The guess (B,) at `places` from hidden (B, H), and its logprob (B,), NaN where the layer gave no finite numbers."""
        guess, logprob = sample(
            self._model.head(hidden).cpu(), self._rows.noise[places], batch.temperature, batch.top_p
        )
        if bool((bad := logprob.isnan()).any()):
            self.tainted.update(batch.slots[bad].tolist())
        return guess, logprob
