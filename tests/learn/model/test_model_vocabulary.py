"""More rows for more tokens: old ones bit by bit, new ones the mean of what spelled them, and the same predictions as before."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from etude.learn.model.checkpoint import load_checkpoint
from etude.learn.model.vocabulary import with_rows

NANO = Path(__file__).parents[3] / "checkpoints" / "sft-nano"


def test_old_rows_stay_and_new_ones_are_the_mean_of_what_spelled_them() -> None:
    model = load_checkpoint(NANO)
    had = model.config.vocab_size
    grown = with_rows(model, {had: [3, 5], had + 2: [7]})
    assert grown.config.vocab_size == had + 3
    for old, new in ((model.embed.weight, grown.embed.weight), (model.head.weight, grown.head.weight)):
        assert torch.equal(new[:had], old)
        assert torch.equal(new[had], (old[3] + old[5]) / 2) and torch.equal(new[had + 2], old[7])


def test_logits_of_old_tokens_do_not_change() -> None:
    model = load_checkpoint(NANO)
    had = model.config.vocab_size
    ids = torch.arange(40, 72).view(1, -1)
    before, after = model(ids).logits, with_rows(model, {had: [3, 5]})(ids).logits
    assert torch.allclose(before, after[..., :had], atol=1e-6)
    assert torch.allclose(after[..., had], (before[..., 3] + before[..., 5]) / 2, atol=1e-5)


def test_rows_that_a_checkpoint_has_to_spare_are_used_first() -> None:
    model = load_checkpoint(NANO)
    last = model.config.vocab_size - 1
    assert with_rows(model, {last: [1, 2]}).config.vocab_size == last + 1


def test_a_token_that_old_rows_can_not_spell_is_refused() -> None:
    model = load_checkpoint(NANO)
    had = model.config.vocab_size
    with pytest.raises(ValueError, match=rf"new id {had} is spelled by \[\]"):
        with_rows(model, {had: []})
    with pytest.raises(ValueError, match=rf"new id {had + 1} is spelled by \[{had}\]"):
        with_rows(model, {had + 1: [had]})
