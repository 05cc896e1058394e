"""Acceptance rates are those of the rules they name, counted once for each drafted token."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from etude.learn.engine.sampling import sample
from etude.learn.model.init import with_drafts
from etude.learn.model.mask import DocumentMask
from etude.learn.train.acceptance import RULES, Acceptance, acceptance_probability, measure_acceptance, tokens_per_pass
from etude.learn.train.self_distillation import draft_states


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.floats(0.2, 3.0), st.floats(0, 8))
def test_rules_stand_in_their_order(seed, temperature, spread):
    """No rule that keeps the target's distribution accepts more than the overlap; equal distributions accept all."""
    generator = torch.Generator().manual_seed(seed)
    p, q = (torch.randn(5, 13, generator=generator) * spread for _ in range(2))
    _, overlap, coupled = acceptance_probability(q, p, temperature)
    assert (coupled <= overlap + 1e-9).all() and (overlap <= 1 + 1e-9).all() and (coupled >= 0).all()
    assert torch.allclose(acceptance_probability(p, p, temperature), torch.ones(3, 5, dtype=torch.float64))


def test_overlap_is_what_rejection_sampling_accepts():
    """Accept a draft x ~ q with probability min(1, p(x) / q(x)), by chance."""
    generator = torch.Generator().manual_seed(0)
    p, q = (torch.randn(1, 9, generator=generator) for _ in range(2))
    (pp, qq), draws = ((x / 0.7).softmax(-1)[0] for x in (p, q)), 40_000
    drawn = torch.multinomial(qq, draws, replacement=True, generator=generator)
    taken = torch.rand(draws, generator=generator) < (pp / qq)[drawn]
    assert float(taken.float().mean()) == pytest.approx(float(acceptance_probability(q, p, 0.7)[1]), abs=0.01)


def test_coupled_is_what_the_engines_sampler_gives_for_one_number():
    generator = torch.Generator().manual_seed(1)
    p, q = (torch.randn(1, 9, generator=generator) for _ in range(2))
    noise = torch.rand(20_000, generator=generator, dtype=torch.float64)
    warm = torch.full((20_000,), 0.7)
    ours, theirs = (sample(x.expand(20_000, -1), noise, warm, None)[0] for x in (p, q))
    assert float((ours == theirs).float().mean()) == pytest.approx(
        float(acceptance_probability(q, p, 0.7)[2]), abs=0.01
    )


def test_at_temperature_zero_all_rules_are_greedy():
    p, q = torch.eye(3), torch.eye(3)[[0, 2, 2]]
    assert acceptance_probability(q, p, 0.0).tolist() == [[1, 0, 1]] * 3


def test_each_drafted_token_counts_once_at_its_own_place(make):
    model = with_drafts(make.model(), 2, seed=0)
    rng = np.random.default_rng(0)
    texts = [(rng.integers(0, 40, n), np.arange(n) % 3 > 0) for n in (5, 40, 23, 70)]
    for depth in measure_acceptance(model, texts, 1.0):
        drafted = [np.flatnonzero(counted) for _, counted in texts]
        drafted = [places[places > depth.depth] for places in drafted]
        assert depth.counts.sum(1).tolist() == [len(places) for places in drafted]
        everywhere = np.concatenate(drafted)
        inside = {first: entry["drafts"] for first, entry in depth.by_position.items()}
        assert inside == {
            first: ((everywhere >= first) & (everywhere < last)).sum()
            for first, last in ((0, 16), (16, 32), (32, 64), (64, 128))
        }


def test_rates_are_those_of_each_text_alone(make):
    model = with_drafts(make.model(), 2, seed=0)
    ids = torch.randint(0, 40, (1, 30), generator=torch.Generator().manual_seed(0))
    other = (np.arange(50) % 40, np.ones(50, bool))
    measured = measure_acceptance(model, [(ids[0].tolist(), [True] * 30), other], 0.8)
    with torch.no_grad():
        out = model(ids)
        states = draft_states(model, out.hidden, ids, DocumentMask.rows(*ids.shape))
    for depth, (hidden, _) in enumerate(states, 1):
        rules = acceptance_probability(model.head(hidden[0, : 29 - depth]), out.logits[0, depth:29], 0.8)
        found = measured[depth - 1].sums[0].sum(-1)
        assert found == pytest.approx(rules.sum(-1).detach().numpy(), rel=1e-4)


def test_tokens_of_a_pass_are_its_own_and_the_accepted_in_a_row():
    def depth(rate):
        return Acceptance(1, np.array([[[rate * 10]] * len(RULES)]), np.array([[10]]))

    assert tokens_per_pass([depth(0.5), depth(0.4)], "greedy") == pytest.approx(1 + 0.5 + 0.2)


def test_the_interval_holds_the_rate_and_narrows(make):
    rng = np.random.default_rng(0)
    few, many = (
        Acceptance(1, rng.binomial(10, 0.6, (n, len(RULES), 1)).astype(float), np.full((n, 1), 10)) for n in (10, 1000)
    )
    for acceptance in (few, many):
        for rule, (low, high) in acceptance.ci95().items():
            assert low <= acceptance.rates[rule] <= high
    assert np.subtract(*many.ci95()["greedy"][::-1]) < np.subtract(*few.ci95()["greedy"][::-1]) / 5


def test_texts_that_give_no_rate_are_refused(make):
    model = with_drafts(make.model(), 1, seed=0)
    with pytest.raises(ValueError, match="hold no token to draft"):
        measure_acceptance(model, [([1, 2], [True, True])], 1.0)
    with pytest.raises(ValueError, match="a text of 3000 tokens.*end at 2048"):
        measure_acceptance(model, [(np.zeros(3000, int), np.ones(3000))], 1.0)
    with pytest.raises(ValueError, match="no draft layers"):
        measure_acceptance(make.model(), [([1] * 9, [True] * 9)], 1.0)
