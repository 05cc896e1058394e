"""The way of classes whose attention is their own: one document a row, and one transformers cache a session.

Hybrids and linear attention carry a state from token to token, so flat tokens of several documents would mix. Training runs rows (R, S), padded
right; what causality hides needs no mask. Tokens that rows begin with alike are computed in each of them. Decoding goes row by row. Slow and correct.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from etude.learn.model.cache import CacheSpan, KVCache
from etude.learn.model.config import ModelConfig
from etude.learn.model.mask import DocumentMask
from etude.learn.model.transformers_backend.config import transformers

CACHES = ("past_key_values", "cache_params")  # what classes call the cache they take and return


class SlotCaches(KVCache):
    """A transformers cache for each slot, made by the class itself. The buffer is empty.

    A state that was carried over all its tokens can't go back to fewer: a slot that is cut forgets everything and is computed again.
    """

    def __init__(self, config: ModelConfig, slots: int, max_len: int, device: torch.device, dtype: torch.dtype) -> None:
        super().__init__(config.model_copy(update={"cached": 0}), slots, max_len, device, dtype)
        self.held: list[Any] = [None] * slots

    def forget(self) -> None:
        super().forget()
        self.held = [None] * self.slots

    def clear(self, slot: int, keep: int = 0) -> None:
        self._cut(slot, keep)
        super().clear(slot, keep)

    def wipe(self, slot: int, start: int = 0, layers: slice = slice(None)) -> None:
        self._cut(slot, start)
        super().wipe(slot, start, layers)

    def cut(self, slots: Tensor, lengths: Tensor) -> None:
        super().cut(slots, lengths)
        for slot, length in zip(slots.tolist(), lengths.tolist(), strict=True):
            self._cut(slot, length, held=None)

    def copy(self, source: int, target: int, length: int) -> None:
        super().copy(source, target, length)
        self.held[target] = deepcopy(self.held[source])
        self._cut(target, length, held=int(self.lengths[source]))

    def _cut(self, slot: int, length: int, held: int | None = -1) -> None:
        """Keep `length` of the `held` tokens: by default those that the slot has; None: of more."""
        held = int(self.lengths[slot]) if held == -1 else held
        if held is not None and length >= held:
            return
        cache = self.held[slot]
        if cache is not None and length and _can_crop(cache):
            cache.crop(length)
        else:
            self.held[slot] = None
            self.lengths[slot] = 0


def _can_crop(cache: Any) -> bool:
    """Whether every layer holds plain keys and values of all tokens."""
    plain = transformers("cache_utils").DynamicLayer
    return bool(layers := getattr(cache, "layers", None)) and all(type(layer) is plain for layer in layers)


class RowPass:
    """Hidden states of a base model of transformers by rows. `in_pieces`: it goes on from a cache with several tokens at a time."""

    def __init__(self, base: nn.Module, *, in_pieces: bool = False) -> None:
        self.base, self.in_pieces = base, in_pieces
        taken = inspect.signature(type(base).forward).parameters
        self._cache = next((name for name in CACHES if name in taken), "")
        self._places = "position_ids" in taken

    def hidden(self, ids: Tensor, mask: DocumentMask) -> tuple[Tensor, torch.Size]:
        """(N, H) of flat ids (N,), and the shape (R, S) of the rows they were laid out in."""
        rows = mask.to_rows(ids.unsqueeze(1)).squeeze(-1)  # (R, S)
        return mask.to_tokens(self.base(input_ids=rows, use_cache=False).last_hidden_state), rows.shape

    def extend(
        self, ids: Tensor, span: CacheSpan, caches: SlotCaches, chosen: Callable[[], list[Tensor]]
    ) -> tuple[Tensor, list[Tensor]]:
        """(N, H) of the new tokens among ids (B, Tn), which go into the caches of the span's slots; and by router the experts (N, K), of which
        `chosen` gives those of a forward."""
        found: list[Tensor] = []
        routes: list[list[Tensor]] = []
        for row, (slot, end) in enumerate(zip(span.slots.tolist(), span.after.tolist(), strict=True)):
            start = int(caches.lengths[slot])
            fresh = ids[row, : end - start]
            pieces = [fresh] if start == 0 or self.in_pieces else list(fresh.split(1))
            for piece in pieces:
                states, caches.held[slot] = self.step(piece, start, None if start == 0 else caches.held[slot])
                found.append(states)
                routes.append(chosen())
                start += len(piece)
        return torch.cat(found), [torch.cat(parts) for parts in zip(*routes, strict=True)]

    def step(self, ids: Tensor, start: int, cache: Any) -> tuple[Tensor, Any]:
        """States (T, H) of ids (T,) behind `start` tokens that `cache` holds, and the cache after them."""
        places = torch.arange(start, start + len(ids), device=ids.device)[None]
        out = self.base(
            input_ids=ids[None],
            use_cache=True,
            **{self._cache: cache},
            **({"position_ids": places} if self._places else {}),
        )
        return out.last_hidden_state[0], out[self._cache]
