"""Loss by position equals the loss of each token summed by hand; buckets double; intervals hold the mean."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from etude.learn.train.by_position import edges, loss_by_position


@given(length=st.integers(2, 100_000))
def test_buckets_cover_every_predicted_position_once_and_double(length: int) -> None:
    bounds = edges(length)
    assert bounds[0] == 1 and bounds[-1] == length and list(bounds) == sorted(set(bounds))
    assert all(b == 2 * a for a, b in zip(bounds[1:-2], bounds[2:-1], strict=True))


def test_it_is_the_mean_loss_of_the_tokens_in_each_bucket(model) -> None:
    rng = np.random.default_rng(0)
    documents = [rng.integers(0, 40, n).tolist() for n in (100, 39, 5, 80)]
    found = loss_by_position(model, documents, 40)
    windows = [documents[0][:40], documents[0][40:80], documents[3][:40], documents[3][40:]]
    logp = torch.log_softmax(model(torch.tensor(windows)).logits.detach(), -1)
    nats = -logp[:, :-1].gather(-1, torch.tensor(windows)[:, 1:, None])[..., 0]  # (4, 39) of positions 1 to 39
    assert found.edges == (1, 16, 32, 40)
    for row, part in zip(found.rows(), (nats[:, :15], nats[:, 15:31], nats[:, 31:]), strict=True):
        assert row["loss"] == pytest.approx(float(part.mean()), rel=1e-5)
        low, high = row["ci95"]  # type: ignore[misc]
        assert low <= row["loss"] <= high
    assert found.nats.shape == (2, 3)  # windows of one document are one draw


def test_documents_shorter_than_the_window_alone_are_refused(model) -> None:
    with pytest.raises(ValueError, match="no held-out document has 64 tokens"):
        loss_by_position(model, [[1] * 63], 64)
