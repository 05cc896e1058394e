"""The attention function that classes of transformers call in place of their own, registered as "etude".

A class hands queries, keys and values of one layer to the registered function. What becomes of them depends on what is running: a training
forward attends within documents (`MaskedAttention`), decoding writes into our cache and attends to it (`CachedAttention`), and a first look at a
new model notes what its layers ask for (`AttentionSurvey`). Tokens are flat, (1, N), in all three.

A class says by its mask which positions a layer sees. The survey reads the rule behind that mask once (`window_of`): all earlier positions, or
the last n of them. A rule of another kind (chunks, two directions, prefixes) is refused, and the class goes by rows (`rows.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from etude.learn.model.cache import CacheSpan
from etude.learn.model.causal_attention import causal_attention
from etude.learn.model.mask import DocumentMask
from etude.learn.model.transformers_backend.config import transformers

NAME = "etude"
STATE = "etude_attention"  # the attribute of every module that leads the function to its model's `AttentionState`
# Arguments of a call that change nothing here: `attention_mask` is read by the survey, positions are in keys and queries already.
HARMLESS = frozenset(
    "position_ids position_embeddings cache_position use_cache past_key_values output_hidden_states output_router_logits "
    "num_items_in_batch sliding_window".split()
)


class UnsupportedAttention(ValueError):
    """A class asks of its attention what is not computed here."""


@dataclass(frozen=True)
class LayerAttention:
    """How one layer attends. `window` 0: to all before. `softcap` 0: none; else scores are softcap * tanh(score / softcap). `sinks` (heads,)."""

    layer: int
    scale: float
    window: int = 0
    softcap: float = 0.0
    sinks: Tensor | None = None


class AttentionCall(Protocol):
    """What is running. Queries (N, heads, width), keys (N, kv_heads, width), values (N, kv_heads, value) to (N, heads, value)."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, how: LayerAttention) -> Tensor: ...


@dataclass
class AttentionState:
    """Of one model: what is running, and by module which layer of the cache it has and the positions that it sees."""

    call: AttentionCall | None = None
    layers: dict[nn.Module, tuple[int, int]] = field(default_factory=dict)

    @contextmanager
    def running(self, call: AttentionCall | None) -> Iterator[None]:
        before, self.call = self.call, call
        try:
            yield
        finally:
            self.call = before


def attach(model: nn.Module) -> AttentionState:
    """Registers the function, and gives all modules of `model` one state."""
    transformers().AttentionInterface.register(NAME, attention)
    transformers("masking_utils").AttentionMaskInterface.register(NAME, _mask)
    state = AttentionState()
    for module in model.modules():
        module.__dict__[STATE] = state
    return state


def attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Any,
    scaling: float | None = None,
    dropout: float = 0.0,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    is_causal: bool | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """query (1, heads, N, width), key and value (1, kv_heads, N, ...) to (1, N, heads, value). Raises UnsupportedAttention."""
    state: AttentionState = module.__dict__[STATE]
    odd = [name for name, given in others.items() if name not in HARMLESS and given is not None and given is not False]
    odd += ["dropout"] if dropout else []
    odd += ["is_causal"] if is_causal is False or getattr(module, "is_causal", True) is False else []
    if odd or state.call is None or query.shape[0] != 1 or query.shape[2] != key.shape[2]:
        asked = (
            f"{odd[0]} = {others.get(odd[0])!r:.60}"
            if odd
            else f"queries {tuple(query.shape)}, keys {tuple(key.shape)}"
        )
        raise UnsupportedAttention(
            f"{type(module).__name__} calls its attention with {asked}, which is not computed here"
        )
    if isinstance(state.call, AttentionSurvey):
        state.layers[module] = state.call.note(key, value, attention_mask)
    layer, window = state.layers[module]
    scale = query.shape[-1] ** -0.5 if scaling is None else float(scaling)
    how = LayerAttention(layer, scale, window, softcap or 0.0, s_aux)
    q, k, v = (_typed(x[0].transpose(0, 1)) for x in (query, key, value))
    return state.call.attend(q, k, v, how).unsqueeze(0), None


def _typed(x: Tensor) -> Tensor:
    """In the type of products under autocast, from which rotations have led keys and queries away."""
    kind = x.device.type
    return x.to(torch.get_autocast_dtype(kind)) if torch.is_autocast_enabled(kind) else x


@dataclass(frozen=True)
class MaskedAttention:
    """Within the documents of a mask; gradients flow."""

    mask: DocumentMask

    def attend(self, q: Tensor, k: Tensor, v: Tensor, how: LayerAttention) -> Tensor:
        function = partial(causal_attention, scale=how.scale, window=how.window, sinks=how.sinks)
        return self.mask.attend(q, k, v, partial(capped_attention, how=how) if how.softcap else function)


@dataclass(frozen=True)
class CachedAttention:
    """New tokens behind what the slots of a cache hold: keys then values of all heads, zeros up to the cache's width."""

    span: CacheSpan

    def attend(self, q: Tensor, k: Tensor, v: Tensor, how: LayerAttention) -> Tensor:
        span, (kv_heads, width), value = self.span, k.shape[1:], v.shape[2]
        group = q.shape[1] // kv_heads
        stored = torch.cat((k.flatten(1), v.flatten(1)), -1)
        buffer = span.cache.buffer
        stored = F.pad(stored, (0, buffer.shape[-1] - stored.shape[-1])).to(buffer.dtype)
        rows = span.to_rows(q.to(buffer.dtype)).view(span.batch, span.width, kv_heads, group, width)
        rows = rows.transpose(1, 2).flatten(2, 3)  # (B, kv_heads, Tn * group, width)
        mixed = []
        for part in span.store(how.layer, stored, how.window):
            keys, values, _ = part.context.split(
                (kv_heads * width, kv_heads * value, buffer.shape[-1] - kv_heads * (width + value)), -1
            )
            keys, values = (x.unflatten(-1, (kv_heads, -1)).transpose(1, 2) for x in (keys, values))
            mixed.append(_mix(rows[part.rows], keys, values, span.bias_for(part, group, how.window), how))
        whole = torch.cat(mixed).view(span.batch, kv_heads, span.width, group, value).transpose(1, 2)
        return span.to_tokens(whole.flatten(2)).unflatten(-1, (-1, value))


def _mix(rows: Tensor, keys: Tensor, values: Tensor, bias: Tensor | None, how: LayerAttention) -> Tensor:
    """rows (B, kv_heads, R, width) against keys and values (B, kv_heads, S, ...), R a multiple of the heads of a group, to (B, kv_heads, R, value).
    `bias` (B, 1, R, S) or None is added to scores."""
    if not how.softcap and how.sinks is None:
        return F.scaled_dot_product_attention(rows, keys, values, bias, scale=how.scale)
    scores = torch.matmul(rows.float(), keys.float().transpose(2, 3)) * how.scale
    if how.softcap:
        scores = how.softcap * torch.tanh(scores / how.softcap)
    scores = scores if bias is None else scores + bias.float()
    if how.sinks is None:
        return torch.matmul(scores.softmax(-1), values.float()).to(rows.dtype)
    count = rows.shape[1]
    sinks = how.sinks.float().view(count, 1, -1)  # (kv_heads, 1, group)
    column = (
        sinks.expand(-1, rows.shape[2] // sinks.shape[2], -1).reshape(1, count, -1, 1).expand(len(rows), -1, -1, -1)
    )
    probabilities = torch.cat((scores, column), -1).softmax(-1)[..., :-1]
    return torch.matmul(probabilities, values.float()).to(rows.dtype)


def capped_attention(
    q: Tensor, k: Tensor, v: Tensor, how: LayerAttention, beginning: tuple[Tensor, Tensor] | None = None
) -> Tensor:
    """As `causal_attention` with capped scores: q (D, Q, heads, width), k and v (D, S, kv_heads, ...) to (D, Q, heads, value), the queries those of
    the last Q of S positions. `beginning`: keys and values (P, kv_heads, ...) before those of every row. All scores exist at one time."""
    if beginning is not None:
        k, v = (
            torch.cat((first.expand(len(q), *first.shape), own), 1)
            for first, own in zip(beginning, (k, v), strict=True)
        )
    documents, queries, heads, width = q.shape
    kv_heads, length = k.shape[2], k.shape[1]
    group = heads // kv_heads
    places = torch.arange(length - queries, length, device=q.device).unsqueeze(1)  # (Q, 1)
    keys = torch.arange(length, device=q.device)
    hidden = keys > places
    if how.window:
        hidden |= keys <= places - how.window
    bias = q.new_zeros(queries, length).masked_fill_(hidden, float("-inf")).repeat_interleave(group, 0)
    rows = q.view(documents, queries, kv_heads, group, width).transpose(1, 2).flatten(2, 3)
    mixed = _mix(rows, k.transpose(1, 2), v.transpose(1, 2), bias, how)  # (D, kv_heads, Q * group, value)
    return mixed.unflatten(2, (queries, group)).transpose(1, 2).flatten(2, 3)


MaskFunction = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class MaskRule:
    """What a class takes for its mask while a survey reads the rule behind it."""

    rule: MaskFunction

    def __call__(self, *places: Tensor) -> Tensor:
        return self.rule(*places)

    def __getitem__(self, cut: Any) -> MaskRule:
        """Itself, if the cut leaves nothing out (Gemma 4 cuts to the last 0, which are all). Raises UnsupportedAttention."""
        if all(isinstance(part, slice) and part in (slice(None), slice(0, None)) for part in cut):
            return self
        raise UnsupportedAttention("the class cuts its mask, which is not read here")


_surveying: ContextVar[bool] = ContextVar("surveying", default=False)


def _mask(*_: Any, mask_function: MaskFunction, **__: Any) -> MaskRule | None:
    """In place of a mask its rule where a survey reads it, and nothing else: who sees whom is decided above."""
    return MaskRule(mask_function) if _surveying.get() else None


@dataclass
class AttentionSurvey:
    """Attention of one document, which notes what each layer stores for a token and which positions it sees. `positions`: how far the model reads."""

    positions: int
    widths: list[int] = field(default_factory=list)  # by layer, floats a token

    def note(self, key: Tensor, value: Tensor, rule: MaskFunction | None) -> tuple[int, int]:
        """The number of the layer that calls, and its window."""
        self.widths.append(key.shape[1] * key.shape[3] + value.shape[1] * value.shape[3])
        return len(self.widths) - 1, 0 if rule is None else window_of(rule, self.positions)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, how: LayerAttention) -> Tensor:
        return MaskedAttention(DocumentMask.rows(1, len(q))).attend(q, k, v, how)

    @contextmanager
    def reading(self, state: AttentionState) -> Iterator[None]:
        token = _surveying.set(True)
        try:
            with state.running(self):
                yield
        finally:
            _surveying.reset(token)


def window_of(rule: MaskFunction, positions: int) -> int:
    """The positions that a query sees, its own among them, by the rule of a mask; 0: all before it. Raises UnsupportedAttention for another rule.

    The rule is asked for a few queries and all keys. A window and a chunk differ in that the former moves with every query.
    """
    if not callable(rule):
        raise UnsupportedAttention(f"the mask of the class is {type(rule).__name__}, which is not read here")
    last = positions + 64
    zero, keys = torch.zeros(1, 1, dtype=torch.long), torch.arange(last + 1)
    seen = {}
    for query in sorted({last, last - 1, last - 37, last // 2, 5}):
        visible = torch.as_tensor(rule(zero, zero, torch.tensor([[query]]), keys.unsqueeze(0))).flatten()
        visible = visible.expand(last + 1) if visible.numel() == 1 else visible
        chosen = keys[visible]
        count = len(chosen)
        if not count or int(chosen[-1]) != query or int(chosen[0]) != query - count + 1:
            raise UnsupportedAttention(
                f"the mask of the class is no causal one: position {query} does not see a run that ends with itself"
            )
        seen[query] = count
    window = seen[last]
    if any(count != min(query + 1, window) for query, count in seen.items()):
        raise UnsupportedAttention("the mask of the class is no causal one with a fixed window")
    return 0 if window > positions else window
