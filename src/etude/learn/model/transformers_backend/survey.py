"""A first look at a model of transformers, at its load: which way it goes, found by what it computes and not by what its class says.

Two short texts go through the class as it is, one at a time. The flat way is taken if our attention, given both in one row, gives the same states:
no token of one text then reached the other, by attention or otherwise. Else the class goes by rows, which are compared in the same manner.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from etude.learn.model.hf_errors import UnsupportedConfig
from etude.learn.model.mask import DocumentMask
from etude.learn.model.transformers_backend.attention import (
    NAME,
    AttentionState,
    AttentionSurvey,
    MaskedAttention,
    UnsupportedAttention,
)
from etude.learn.model.transformers_backend.config import TransformersConfig
from etude.learn.model.transformers_backend.rows import RowPass

LENGTHS = (9, 6)  # of the two texts
# States of two ways to compute the same differ by rounding; those of a leak by more. A share of their standard deviation.
TOLERANCE, ROUNDED_TOLERANCE = 1e-4, 5e-2  # of weights in fp32, and in less
# What a class may raise when it is called in a manner that it was not written for.
ERRORS = (
    UnsupportedAttention,
    ValueError,
    TypeError,
    AttributeError,
    RuntimeError,
    KeyError,
    IndexError,
    NotImplementedError,
    AssertionError,
)


@dataclass(frozen=True)
class Survey:
    """`widths`: by layer the floats a token takes in our cache; empty where the class goes by rows, and `why`. `in_pieces`: see `RowPass`."""

    widths: tuple[int, ...]
    why: str = ""
    in_pieces: bool = True


@torch.no_grad()
def survey(inner: Any, base: nn.Module, state: AttentionState, config: TransformersConfig) -> Survey:
    """Leaves the class with the attention of the way that is taken. Raises UnsupportedConfig for a class that can be computed in neither way."""
    device = next(inner.parameters()).device
    generator = torch.Generator().manual_seed(0)
    texts = [torch.randint(config.vocab_size, (length,), generator=generator).to(device) for length in LENGTHS]
    own = inner.config._attn_implementation
    alone = [base(input_ids=ids[None], use_cache=False).last_hidden_state[0] for ids in texts]
    try:
        if not inner._can_set_attn_implementation():
            raise UnsupportedAttention("the class takes no attention function")
        inner.set_attn_implementation(NAME)
        return Survey(_flat(base, state, config, texts, alone))
    except ERRORS as error:
        if inner.config._attn_implementation != own:
            inner.set_attn_implementation(own)
        why = str(error).splitlines()[0] if str(error) else type(error).__name__
    return _rows(RowPass(base), texts, alone, why, config.family)


def _flat(
    base: nn.Module, state: AttentionState, config: TransformersConfig, texts: list[Tensor], alone: list[Tensor]
) -> tuple[int, ...]:
    """The widths of all layers. Raises UnsupportedAttention."""
    looking = AttentionSurvey(config.context_length)
    device = texts[0].device
    with looking.reading(state):
        places = torch.arange(LENGTHS[0], device=device)[None]
        base(input_ids=texts[0][None], position_ids=places, use_cache=False)
    if not looking.widths or len(looking.widths) > config.layers:
        raise UnsupportedAttention(f"{len(looking.widths)} calls of attention in {config.layers} layers")
    documents = torch.repeat_interleave(torch.arange(2), torch.tensor(LENGTHS))[None].to(device)
    mask = DocumentMask.packed(documents)
    with state.running(MaskedAttention(mask)):
        out = base(input_ids=torch.cat(texts)[None], position_ids=mask.positions, use_cache=False)
    for found, expected in zip(out.last_hidden_state[0].split(LENGTHS), alone, strict=True):
        if not _same(found, expected):
            raise UnsupportedAttention("flat tokens of two documents mix, or positions are not those that are given")
    return tuple(looking.widths)


def _rows(way: RowPass, texts: list[Tensor], alone: list[Tensor], why: str, family: str) -> Survey:
    """Whether the cache goes on by several tokens. Raises UnsupportedConfig where it does not even go on by one."""
    ids, expected = texts[0], alone[0]
    half = len(ids) // 2

    def decode(pieces: Callable[[Tensor], Any]) -> Tensor:
        states, cache = way.step(ids[:half], 0, None)
        found, start = [states], half
        for piece in pieces(ids[half:]):
            states, cache = way.step(piece, start, cache)
            found.append(states)
            start += len(piece)
        return torch.cat(found)

    for in_pieces, pieces in ((True, lambda rest: [rest]), (False, lambda rest: rest.split(1))):
        try:
            same = _same(decode(pieces), expected)
        except ERRORS as error:
            same, why = False, f"{why}; {error}"
        if same:
            return Survey((), why, in_pieces)
    raise UnsupportedConfig(
        f"{family}: transformers' class decodes other states with its cache than without ({why:.200}); this model can't be served"
    )


def _same(found: Tensor, expected: Tensor) -> bool:
    tolerance = TOLERANCE if expected.dtype in (torch.float32, torch.float64) else ROUNDED_TOLERANCE
    return bool((found - expected).abs().max() <= tolerance * expected.std())
