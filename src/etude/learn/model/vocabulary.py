"""A model with more rows in its embedding and head, for a tokenizer that was extended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from etude.learn.model.causal_lm import CausalLM
from etude.learn.model.transformers_backend.config import refuse


@torch.no_grad()
def with_rows(model: CausalLM, spelled: Mapping[int, Sequence[int]]) -> CausalLM:
    """The model with a row for every new id, which starts as the mean of the rows of the old ids that spelled it: what the model knew of
    the text is there from the first step, and its logits for the new token lie among those of the old ones. Old rows are equal bit by bit.

    `spelled` is new id -> old ids, as `corpus.extension.spelled` gives it; ids may lie in rows that the model has without using them
    (checkpoints pad theirs). Raises ValueError for an id that old rows can't spell.
    """
    refuse(model.config, "a larger vocabulary")
    had = model.config.vocab_size
    rows = max((*spelled, had - 1)) + 1
    grown = CausalLM(model.config.model_copy(update={"vocab_size": rows})).to(model.embed.weight.dtype)
    state = model.state_dict()
    for key in ("embed.weight", "head.weight")[: 1 if model.config.tied else 2]:
        old = state[key]
        fresh = old.new_zeros(rows, old.shape[1])  # (V, H)
        fresh[:had] = old
        for number, ids in spelled.items():
            if not ids or max(ids) >= had:
                raise ValueError(
                    f"new id {number} is spelled by {list(ids)}, of which the model's {had} rows hold not all"
                )
            fresh[number] = old[list(ids)].mean(0)
        state[key] = fresh
    grown.load_state_dict(state)
    return grown
