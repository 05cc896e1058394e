"""A batch divided over ranks: losses, gradients and counts of the parts add up to those of the whole."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from etude.learn.model.init import new_model
from etude.learn.model.settings import ModelSettings
from etude.learn.train.batch import TrainBatch, padded_batch, shared_batch
from etude.learn.train.next_token import NextToken

SIZES = dict(hidden_size=32, layers=2, heads=2, kv_heads=1, head_dim=16, dense_intermediate=48, init_head_std=0.3)
ROWS = st.lists(st.lists(st.integers(0, 3), min_size=2, max_size=7), min_size=1, max_size=6)


def packed(rows: list[np.ndarray], weights: list[np.ndarray]) -> TrainBatch:
    """Two documents a row."""
    whole = padded_batch(rows, weights)
    documents = torch.zeros_like(whole.ids)
    documents[:, whole.ids.shape[1] // 2 :] = 1
    weight = whole.weights.clone()
    weight[:, whole.ids.shape[1] // 2] = 0  # a document's first token is predicted by none
    return TrainBatch(whole.ids, weight, whole.real, documents)


FORMS: dict[str, Callable[[list[np.ndarray], list[np.ndarray]], TrainBatch]] = {
    "rows": padded_batch,
    "packed": packed,
    "tree": shared_batch,
}


def drawn(rows: list[list[int]]) -> tuple[list[np.ndarray], list[np.ndarray]]:
    ids = [np.array(row) for row in rows]
    generator = np.random.default_rng(len(ids))
    weights = [(generator.random(len(row)) * (np.arange(len(row)) > 0)).astype(np.float32) for row in ids]
    return ids, weights


@given(ROWS, st.integers(1, 4), st.sampled_from(sorted(FORMS)))
def test_every_weight_and_every_real_token_is_in_one_part(rows: list[list[int]], ranks: int, form: str) -> None:
    batch = FORMS[form](*drawn(rows))
    parts = [batch.share(range(rank, batch.rows, ranks)) for rank in range(ranks)]
    assert sum(part.token_count for part in parts) == batch.token_count
    assert torch.allclose(sum(part.weights.sum() for part in parts), batch.weights.sum())  # type: ignore[arg-type]
    assert all(part.whole_weight == batch.weights.sum() for part in parts)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_losses_and_gradients_of_the_parts_add_up(form: str, ranks: int) -> None:
    generator = np.random.default_rng(0)
    begin = generator.integers(0, 50, 70)
    rows = [np.concatenate((begin, generator.integers(0, 50, length))) for length in (9, 30, 17, 4)]
    batch = FORMS[form](
        rows, [(generator.random(len(row)) * (np.arange(len(row)) > 60)).astype(np.float32) for row in rows]
    )
    found = []
    for count in (1, ranks):
        model = new_model(ModelSettings.model_validate({"family": "qwen3", **SIZES}), 50)
        loss = 0.0
        for rank in range(count):
            part = batch if count == 1 else batch.share(range(rank, batch.rows, count))
            value = NextToken(model, 0.0).loss(part)
            value.backward()
            loss += float(value.detach())
        found.append((loss, [p.grad for p in model.parameters()]))
    (whole, expected), (summed, gradients) = found
    assert abs(summed - whole) <= 1e-5 * whole
    for got, wanted in zip(gradients, expected, strict=True):
        assert got is not None and wanted is not None
        assert (got - wanted).abs().max() <= 2e-5 * wanted.abs().max().clamp(min=1e-3)
