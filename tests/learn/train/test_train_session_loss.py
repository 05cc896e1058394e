"""Loss on held-out sessions counts what the policy sampled and nothing else."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from etude.learn.train.session_loss import session_loss


def by_hand(model, segments) -> float:
    nats: list[float] = []
    for segment in segments:
        with torch.inference_mode():
            logprobs = model(torch.tensor(segment.ids)[None]).logits[0].log_softmax(-1)
        nats += [-float(logprobs[t - 1, segment.ids[t]]) for t in range(1, len(segment)) if segment.sampled[t]]
    return float(np.mean(nats))


def test_it_is_the_mean_over_sampled_tokens_whatever_the_batches(model, make, monkeypatch) -> None:
    monkeypatch.setattr("etude.learn.train.session_loss.BATCH_TOKENS", 32)
    segments = [s for rollout in make.rollouts(model, 6) for s in rollout.segments]
    assert session_loss(model, segments) == pytest.approx(by_hand(model, segments), abs=1e-5)


def test_without_a_sampled_token_there_is_no_loss(model) -> None:
    assert session_loss(model, []) is None
