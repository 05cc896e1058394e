"""Draws follow the distribution they report, and depend on nothing but their own row."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from engine_lab import answer, ask, prompt

from etude.agent.policy.protocol import PolicyError
from etude.learn.engine.core import EngineCore
from etude.learn.engine.running import LEAST_TOP_P
from etude.learn.engine.sampling import noise, sample
from etude.learn.engine.settings import EngineSettings

# 99.99th percentile of chi-square with 7 degrees of freedom: the seeds are fixed, so this cannot flicker.
CHI_SQUARE_7 = 29.9
DRAWS = 20_000


def draw(logits: torch.Tensor, temperature: float, top_p: float) -> tuple[np.ndarray, np.ndarray]:
    rows = logits.expand(DRAWS, -1)
    ids, logprobs = sample(
        rows,
        torch.from_numpy(noise(3, 5, DRAWS)),
        None if temperature == 1 else torch.full((DRAWS,), temperature),
        None if top_p == 1 else torch.full((DRAWS,), top_p),
    )
    return ids.numpy(), logprobs.numpy()


def test_frequencies_match_the_distribution_by_chi_square() -> None:
    logits = torch.tensor([2.0, 1.0, 0.5, 0.0, -0.5, -1.0, 1.5, 0.2])
    for temperature in (1.0, 0.6, 1.7):
        ids, _ = draw(logits, temperature, 1.0)
        expected = (logits / temperature).softmax(-1).numpy() * DRAWS
        seen = np.bincount(ids, minlength=8)
        assert ((seen - expected) ** 2 / expected).sum() < CHI_SQUARE_7


def test_logprobs_are_those_of_the_sampled_distribution() -> None:
    logits = torch.randn(50, generator=torch.Generator().manual_seed(0))
    for temperature in (1.0, 0.5):
        ids, logprobs = draw(logits, temperature, 1.0)
        truth = (logits.double() / temperature).log_softmax(-1).numpy()[ids]
        assert np.abs(logprobs - truth).max() < 1e-5


@pytest.mark.parametrize("temperature", [1e-6, 1e-30, float(np.finfo(np.float32).tiny)])
def test_a_tiny_temperature_takes_the_likeliest_token_for_certain(temperature: float) -> None:
    ids, logprobs = draw(torch.tensor([80.0, -20.0, 81.0, float("-inf")]), temperature, 1.0)
    assert set(ids.tolist()) == {2} and set(logprobs.tolist()) == {0.0}


def test_top_p_keeps_the_smallest_likeliest_set_and_renormalises() -> None:
    probabilities = torch.tensor([0.1, 0.5, 0.25, 0.15])
    ids, logprobs = draw(probabilities.log(), 1.0, 0.7)
    assert set(ids.tolist()) == {1, 2}
    assert np.allclose(np.unique(np.exp(logprobs)), [1 / 3, 2 / 3], atol=1e-6)


def test_top_p_of_one_row_leaves_the_others_alone() -> None:
    logits = torch.randn(6, 30, generator=torch.Generator().manual_seed(1))
    u = torch.from_numpy(noise(1, 1, 6))
    plain, plain_logprobs = sample(logits, u, None, None)
    mixed, mixed_logprobs = sample(logits, u, None, torch.tensor([1.0, 0.1, 1.0, 1.0, 1.0, 1.0]))
    others = [0, 2, 3, 4, 5]
    assert torch.equal(plain[others], mixed[others])
    assert torch.allclose(plain_logprobs[others], mixed_logprobs[others], atol=1e-6)
    assert mixed[1] == logits[1].argmax()


def test_temperature_zero_is_greedy_next_to_warm_rows_and_reports_temperature_one() -> None:
    logits = torch.randn(4, 20, generator=torch.Generator().manual_seed(2))
    u = torch.from_numpy(noise(1, 1, 4))
    ids, logprobs = sample(logits, u, torch.tensor([0.0, 1.0, 0.0, 2.0]), None)
    assert ids[0] == logits[0].argmax() and ids[2] == logits[2].argmax()
    assert torch.isclose(logprobs[0], logits[0].log_softmax(-1).max())
    assert ids[1] == sample(logits, u, None, None)[0][1]


def test_impossible_tokens_are_never_drawn_even_at_the_ends_of_the_noise() -> None:
    logits = torch.tensor([float("-inf"), 0.0, float("-inf"), 0.0, float("-inf")])
    u = torch.tensor([0.0, 0.49999, 0.5, 1 - 2**-53], dtype=torch.float64)
    ids, logprobs = sample(logits.expand(4, -1), u, None, None)
    assert ids.tolist() == [1, 1, 3, 3] and bool(logprobs.isfinite().all())


def test_noise_is_uniform_and_apart_for_seeds_and_turns() -> None:
    u = noise(0, 10, 10_000)
    assert ((np.histogram(u, 8, (0, 1))[0] - 1250) ** 2 / 1250).sum() < CHI_SQUARE_7
    assert not np.allclose(noise(0, 10, 5), noise(1, 10, 5)) and not np.allclose(noise(0, 10, 5), noise(0, 11, 5))
    assert np.array_equal(noise(-1, 10, 5), noise(2**64 - 1, 10, 5))


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_the_alternatives_of_a_token_are_the_likeliest_of_its_distribution(mla, temperature):
    core = EngineCore(mla, EngineSettings(max_slots=2, max_batch=2, max_len=64))
    plain, asked = ask("a", prompt(1, 10)), ask("b", prompt(2, 10), extra={"top_logprobs": 5}, temperature=temperature)
    other, found = answer(core, plain, asked)
    assert other.tokens.top is None and [len(row) for row in found.tokens.top] == [5] * 12
    ids = [*prompt(2, 10), *found.tokens.ids]
    with torch.inference_mode():
        logits = mla(torch.tensor([ids])).logits[0, 9:-1].float() / (temperature or 1.0)
    wanted = logits.log_softmax(-1)
    for row, token, logprob, expected in zip(
        found.tokens.top, found.tokens.ids, found.tokens.logprobs, wanted, strict=True
    ):
        values, best = expected.topk(5)
        assert [id for id, _ in row] == best.tolist()
        assert [value for _, value in row] == pytest.approx(values.tolist(), abs=1e-4)
        assert dict(row).get(token, logprob) == pytest.approx(logprob, abs=1e-6)


def test_alternatives_leave_out_what_top_p_excludes_and_refuse_more_than_twenty(mla):
    core = EngineCore(mla, EngineSettings(max_slots=2, max_batch=2, max_len=64))
    (found,) = answer(core, ask("a", prompt(1, 10), extra={"top_logprobs": 20, "top_p": 0.3}))
    assert all(1 <= len(row) < 20 and sum(math.exp(value) for _, value in row) < 1.001 for row in found.tokens.top)
    with pytest.raises(PolicyError, match="top_logprobs is 21"):
        core.submit(ask("b", prompt(1, 10), extra={"top_logprobs": 21}))


def test_the_smallest_top_p_keeps_the_likeliest_token_alone(mla):
    core = EngineCore(mla, EngineSettings(max_slots=2, max_batch=2, max_len=64))
    (small,) = answer(core, ask("a", prompt(1, 10), extra={"top_p": LEAST_TOP_P}))
    (greedy,) = answer(core, ask("b", prompt(1, 10), temperature=0.0))
    assert small.tokens.ids == greedy.tokens.ids and small.tokens.logprobs == [0.0] * len(small.tokens.ids)
