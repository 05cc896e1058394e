"""What the engine knows about every token in every slot, in preallocated tensors, and the rows that decode now.

A token's place is `slot * max_len + position`, the same in all tensors, so one index per row writes a step's results; nothing
is collected per token in Python. Positions: token p is sampled from the logits of position p - 1, and routed when it is
itself forwarded, one step later.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from etude.core.trace.completion import SampledTokens

# The most alternatives of a token that a request may ask for, as at OpenAI.
MAX_TOP = 20
NO_TOKEN = -1  # fills unused stop columns; no id is negative


class TokenRows:
    """Per-token tensors (slots * max_len, ...) and per-request tensors (slots, ...), all on the CPU but `hidden`.

    `hidden` (slots * max_len, H) is kept only for draft layers, which read the trunk's output at tokens that were forwarded
    long before they are needed: those of a shared prompt or an earlier turn. It takes H floats a token in addition to the cache's
    layers * cache_width.
    """

    hidden: Tensor | None = None
    top_ids: Tensor | None = None  # (slots * max_len, MAX_TOP), from the first request on that asks for alternatives
    top_logprobs: Tensor | None = None

    def __init__(
        self, slots: int, max_len: int, moe_layers: int, experts_per_token: int, route_dtype: torch.dtype
    ) -> None:
        self.max_len = max_len
        places = slots * max_len
        self.ids = torch.zeros(places, dtype=torch.long)
        self.logprobs = torch.zeros(places)
        self.versions = torch.zeros(places, dtype=torch.int32)
        self.noise = torch.zeros(places, dtype=torch.float64)
        self.routes = torch.zeros(places, moe_layers, experts_per_token, dtype=route_dtype)
        self.temperature = torch.ones(slots)
        self.top_p = torch.ones(slots)
        self.end = torch.zeros(slots, dtype=torch.long)  # place of the last token the request may sample
        self.stops = torch.full((slots, 1), NO_TOKEN)
        self.top_count = torch.zeros(slots, dtype=torch.long)

    def keep_hidden(self, like: Tensor) -> None:
        """From now on hidden states are kept, of the width, type and device of the embedding `like` (V, H)."""
        self.hidden = torch.zeros(len(self.ids), like.shape[1], dtype=like.dtype, device=like.device)

    def place(self, slot: int, position: int = 0) -> int:
        return slot * self.max_len + position

    def tokens(self, slot: int, start: int, stop: int) -> Tensor:
        """Ids (stop - start,) at these positions of a slot."""
        return self.ids[self.place(slot, start) : self.place(slot, stop)]

    def set_stops(self, slot: int, stop_ids: tuple[int, ...]) -> None:
        missing = len(stop_ids) - self.stops.shape[1]
        if missing > 0:
            self.stops = torch.cat((self.stops, torch.full((len(self.stops), missing), NO_TOKEN)), dim=1)
        self.stops[slot] = NO_TOKEN
        self.stops[slot, : len(stop_ids)] = torch.tensor(stop_ids, dtype=torch.long)

    def set_top(self, slot: int, count: int) -> None:
        """How many alternatives of each token the slot's request asks for."""
        self.top_count[slot] = count
        if count and self.top_ids is None:
            self.top_ids = torch.zeros(len(self.ids), MAX_TOP, dtype=torch.long)
            self.top_logprobs = torch.zeros(len(self.ids), MAX_TOP)

    def keep_top(self, places: Tensor, logprobs: Tensor) -> None:
        """Record the likeliest tokens of logprobs (B, V) at places (B,)."""
        assert self.top_ids is not None and self.top_logprobs is not None
        values, ids = logprobs.topk(min(MAX_TOP, logprobs.shape[1]))
        self.top_ids[places, : ids.shape[1]] = ids
        self.top_logprobs[places] = float("-inf")
        self.top_logprobs[places, : ids.shape[1]] = values

    def sampled(self, slot: int, start: int, stop: int) -> SampledTokens:
        """What is known of the tokens at these positions of a slot, without their routes."""
        here = slice(self.place(slot, start), self.place(slot, stop))
        ids, logprobs, versions = self.ids[here].tolist(), self.logprobs[here].tolist(), self.versions[here].tolist()
        return SampledTokens(ids, logprobs, versions, top=self._top(here, int(self.top_count[slot])))

    def _top(self, here: slice, count: int) -> list[list[tuple[int, float]]] | None:
        if not count or self.top_ids is None or self.top_logprobs is None:
            return None
        rows = zip(self.top_ids[here, :count].tolist(), self.top_logprobs[here, :count].tolist(), strict=True)
        return [[(id, value) for id, value in zip(*row, strict=True) if value > float("-inf")] for row in rows]

    def copy(self, source: int, target: int, length: int) -> None:
        """Routes and hidden states of the first `length` tokens, for a prefix whose cache was copied."""
        a, b = self.place(source), self.place(target)
        self.routes[b : b + length] = self.routes[a : a + length]
        if self.hidden is not None:
            self.hidden[b : b + length] = self.hidden[a : a + length]


@dataclass
class StepBatch:
    """The rows of one step, gathered from `TokenRows` whenever requests join or leave."""

    slots: Tensor  # (B,)
    places: Tensor  # (B,) where the next sampled token goes
    last: Tensor  # (B,) the token to forward
    stops: Tensor  # (B, stops)
    end: Tensor  # (B,)
    temperature: Tensor | None  # (B,), None if 1 everywhere
    top_p: Tensor | None
    top: Tensor | None  # the rows that ask for alternatives, None if none does

    @classmethod
    def gather(cls, rows: TokenRows, slots: list[int], positions: Tensor) -> StepBatch:
        """Rows for `slots`, whose next tokens go to `positions` (B,). Slots in order: neighbours are read without a copy."""
        index = torch.tensor(slots, dtype=torch.long)
        places = index * rows.max_len + positions
        temperature, top_p = rows.temperature[index], rows.top_p[index]
        top = None if rows.top_ids is None else rows.top_count[index].nonzero().flatten()
        return cls(
            slots=index,
            places=places,
            last=rows.ids[places - 1],
            stops=rows.stops[index],
            end=rows.end[index],
            temperature=None if bool((temperature == 1).all()) else temperature,
            top_p=None if bool((top_p >= 1).all()) else top_p,
            top=None if top is None or not len(top) else top,
        )

    def over(self, ids: Tensor) -> Tensor:
        """Which of the tokens ids (B,) are stops of their row, (B,) bool."""
        return (ids.unsqueeze(1) == self.stops).any(1)

    def __len__(self) -> int:
        return len(self.slots)
