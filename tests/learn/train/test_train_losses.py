"""Losses equal their definitions, in one chunk or many."""

import pytest
import torch

from etude.learn.train import losses

GENERATOR = torch.Generator().manual_seed(0)
HIDDEN = torch.randn(37, 8, generator=GENERATOR)
HEAD = torch.randn(11, 8, generator=GENERATOR)
TARGETS = torch.randint(0, 11, (37,), generator=GENERATOR)


def by_hand(hidden, temperature=1.0):
    logits = hidden @ HEAD.T / temperature
    return torch.stack([torch.log_softmax(row, 0)[t] for row, t in zip(logits, TARGETS, strict=True)])


@pytest.mark.parametrize("chunk", [5, 4096])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_logprobs_and_their_gradient_equal_the_definition(monkeypatch, chunk, temperature):
    monkeypatch.setattr(losses, "CHUNK_POSITIONS", chunk)
    first, second = HIDDEN.clone().requires_grad_(), HIDDEN.clone().requires_grad_()
    got = losses.token_logprobs(first, TARGETS, lambda h: h @ HEAD.T, temperature)
    want = by_hand(second, temperature)
    torch.testing.assert_close(got, want)
    (got * torch.arange(37)).sum().backward()
    (want * torch.arange(37)).sum().backward()
    torch.testing.assert_close(first.grad, second.grad)


@pytest.mark.parametrize("chunk", [5, 4096])
def test_entropy_equals_the_definition(monkeypatch, chunk):
    monkeypatch.setattr(losses, "CHUNK_POSITIONS", chunk)
    logprobs, entropy = losses.logprobs_and_entropy(HIDDEN.clone().requires_grad_(), TARGETS, lambda h: h @ HEAD.T)
    want = torch.distributions.Categorical(logits=HIDDEN @ HEAD.T).entropy()
    torch.testing.assert_close(entropy, want)
    torch.testing.assert_close(logprobs, by_hand(HIDDEN))
    assert logprobs.requires_grad and not entropy.requires_grad


def test_chunks_are_bounded_by_the_bytes_of_their_logits(monkeypatch):
    small, large = (torch.nn.Linear(8, vocabulary, bias=False) for vocabulary in (1024, 49_152))
    hidden = torch.zeros(5000, 8)
    assert losses.chunk_positions(hidden, small) == losses.CHUNK_POSITIONS  # the laptop's chunks did not change
    assert losses.chunk_positions(hidden, large) == 320
    assert losses.positions_within(losses.LOGIT_BYTES, 10**9) == losses.CHUNK_STEP
    seen = []
    monkeypatch.setattr(losses, "LOGIT_BYTES", 64 * 11 * 4)
    values = losses.token_logprobs(HIDDEN.repeat(9, 1), TARGETS.repeat(9), lambda h: seen.append(len(h)) or h @ HEAD.T)
    assert max(seen) == 64 and sum(seen) == 1 + 9 * 37  # one row asks for the vocabulary's size
    torch.testing.assert_close(values, by_hand(HIDDEN).repeat(9))


def test_cross_entropy_is_the_weighted_mean():
    weights = torch.rand(37, generator=torch.Generator().manual_seed(1))
    got = losses.weighted_cross_entropy(HIDDEN, TARGETS, weights, lambda h: h @ HEAD.T)
    torch.testing.assert_close(got, -(by_hand(HIDDEN) * weights).sum() / weights.sum())


def test_policy_coefficients_know_no_lengths():
    advantages, weights = torch.tensor([1.0, 1.0, -2.0]), torch.tensor([1.0, 2.0, 0.5])
    found = losses.policy_coefficients(advantages, weights, rollouts=4, loss_tokens=10)
    torch.testing.assert_close(found, -advantages * weights / 40)
