"""The engine against the plain forward and against itself: batching, caching and eviction never show in the tokens."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch
from engine_lab import VOCAB, answer, ask, drain, prompt

from etude.agent.policy.protocol import PolicyError
from etude.core.trace.completion import Completion, SampledTokens
from etude.learn.engine.core import EngineCore
from etude.learn.engine.probe import compare
from etude.learn.engine.settings import EngineSettings
from etude.learn.model.causal_lm import CausalLM

SETTINGS = EngineSettings(max_slots=8, max_batch=8, max_len=128)


def tokens(completion: Completion) -> SampledTokens:
    assert completion.tokens is not None
    return completion.tokens


def settings(**changes: object) -> EngineSettings:
    return SETTINGS.model_copy(update=changes)


def test_logprobs_and_experts_equal_the_plain_forward(model: CausalLM) -> None:
    core = EngineCore(model, SETTINGS)
    prompts = [prompt(seed, 3 + 7 * seed) for seed in range(8)]
    done = answer(core, *(ask(f"s{n}", ids, seed=n, max_tokens=20 + n) for n, ids in enumerate(prompts)))
    result = compare(model, [(ids, tokens(completion)) for ids, completion in zip(prompts, done, strict=True)])
    assert result.max_dlogp <= 1e-5 and result.routes_equal
    assert result.tokens == sum(20 + n for n in range(8))
    forwarded = sum(len(ids) + 20 + n - 1 for n, ids in enumerate(prompts))
    config = model.config
    assert result.routes == forwarded * len(config.moe_layers) * config.experts_per_token


def test_logprobs_are_at_the_requests_temperature(mla: CausalLM) -> None:
    ids = prompt(0, 10)
    completion = answer(EngineCore(mla, SETTINGS), ask("s", ids, temperature=0.7))[0]
    logits = mla(torch.tensor([[*ids, *tokens(completion).ids]])).logits[0, 9:-1] / 0.7
    truth = logits.log_softmax(-1).gather(1, torch.tensor(tokens(completion).ids).unsqueeze(1)).squeeze(1)
    assert np.allclose(truth.detach().numpy(), tokens(completion).logprobs, atol=1e-5)


def test_batch_mates_do_not_change_what_is_sampled(model: CausalLM) -> None:
    """Logits of one row differ in the last bits between batch shapes; a token changes only if its random number lies within
    1e-6 of a boundary. 12 requests of 12 tokens, fixed seeds: none does here."""
    requests = [ask(f"s{n}", prompt(n, 4 + 3 * n), seed=n, temperature=0.5 + 0.1 * n) for n in range(12)]
    alone = [answer(EngineCore(model, SETTINGS), request)[0] for request in requests]
    together = answer(EngineCore(model, SETTINGS), *requests)  # 12 requests, 8 slots: some join when others leave
    for one, other in zip(alone, together, strict=True):
        assert tokens(one).ids == tokens(other).ids
        assert np.allclose(tokens(one).logprobs, tokens(other).logprobs, atol=1e-5)
        assert np.array_equal(tokens(one).routes, tokens(other).routes)  # type: ignore[arg-type]


def test_seeds_tell_requests_apart_and_none_falls_back_to_the_engines(mla: CausalLM) -> None:
    ids = prompt(0, 8)
    a, b, c, d = answer(EngineCore(mla, SETTINGS), *(ask(f"s{n}", ids, seed=s) for n, s in enumerate([5, 5, 6, None])))
    assert tokens(a).ids == tokens(b).ids != tokens(c).ids
    again = answer(EngineCore(mla, SETTINGS), *(ask(f"s{n}", ids, seed=s) for n, s in enumerate([5, 5, 6, None])))[3]
    other = answer(
        EngineCore(mla, settings(seed=9)), *(ask(f"s{n}", ids, seed=s) for n, s in enumerate([5, 5, 6, None]))
    )
    assert tokens(d).ids == tokens(again).ids != tokens(other[3]).ids


def test_a_later_turn_reuses_the_cache_and_equals_a_fresh_prefill(model: CausalLM) -> None:
    core = EngineCore(model, SETTINGS)
    first_prompt = prompt(0, 20)
    first = answer(core, ask("s", first_prompt))[0]
    second_prompt = (*first_prompt, *tokens(first).ids, *prompt(1, 6))
    sticky = answer(core, ask("s", second_prompt, seed=2))[0]
    fresh = answer(EngineCore(model, SETTINGS), ask("s", second_prompt, seed=2))[0]
    cached = len(first_prompt) + 12 - 1  # the last sampled token was never forwarded
    assert sticky.usage.cached_tokens == cached and fresh.usage.cached_tokens == 0
    assert tokens(sticky).ids == tokens(fresh).ids
    assert np.allclose(tokens(sticky).logprobs, tokens(fresh).logprobs, atol=1e-5)
    assert tokens(sticky).route_start == cached
    own, whole = tokens(sticky).routes, tokens(fresh).routes
    assert own is not None and whole is not None
    assert np.array_equal(own, whole[cached:]) and np.array_equal(tokens(first).routes, whole[:cached])  # type: ignore[arg-type]


def test_a_forked_turn_keeps_only_the_common_prefix(mla: CausalLM) -> None:
    core = EngineCore(mla, SETTINGS)
    ids = prompt(0, 30)
    answer(core, ask("s", ids))
    forked = (*ids[:17], (ids[17] + 1) % VOCAB, *ids[18:25])
    completion = answer(core, ask("s", forked))[0]
    assert completion.usage.cached_tokens == 17 and tokens(completion).route_start == 0
    found = compare(mla, [(forked, tokens(completion))])
    assert found.max_dlogp <= 1e-5 and found.routes_equal
    shorter = answer(core, ask("s", forked[:10]))[0]  # all of it is cached, but its last token must be forwarded
    assert shorter.usage.cached_tokens == 9
    assert compare(mla, [(forked[:10], tokens(shorter))]).max_dlogp <= 1e-5


def test_an_evicted_session_is_computed_again_and_goes_on_the_same(mla: CausalLM) -> None:
    small = settings(max_slots=2, max_batch=2)
    core = EngineCore(mla, small)
    ids = prompt(0, 20)
    first = answer(core, ask("s", ids))[0]
    for n in range(2):
        answer(core, ask(f"other{n}", prompt(5 + n, 9)))
    turn = (*ids, *tokens(first).ids, *prompt(2, 4))
    completion = answer(core, ask("s", turn, seed=3))[0]
    assert completion.usage.cached_tokens == 0 and core.stats.evictions == 2
    assert tokens(completion).ids == tokens(answer(EngineCore(mla, small), ask("s", turn, seed=3))[0]).ids
    assert compare(mla, [(turn, tokens(completion))]).max_dlogp <= 1e-5


def test_a_group_computes_its_common_prompt_once(model: CausalLM) -> None:
    ids = prompt(0, 40)
    requests = [ask(f"s{n}", (*ids, *prompt(n, n % 3)), seed=n) for n in range(8)]
    core, plain = EngineCore(model, SETTINGS), EngineCore(model, settings(share_prefix=False))
    shared, separate = answer(core, *requests), answer(plain, *requests)
    assert core.stats.shared_tokens >= 7 * 39 and plain.stats.shared_tokens == 0
    for one, other in zip(shared, separate, strict=True):
        assert tokens(one).ids == tokens(other).ids
        assert np.allclose(tokens(one).logprobs, tokens(other).logprobs, atol=1e-5)
        assert tokens(one).route_start == 0
        assert np.array_equal(tokens(one).routes, tokens(other).routes)  # type: ignore[arg-type]


def test_a_prompt_is_shared_from_a_slot_that_was_released(mla: CausalLM) -> None:
    core = EngineCore(mla, settings(max_slots=1, max_batch=1))
    ids = prompt(0, 40)
    answer(core, ask("a", ids))
    core.release("a")
    completion = answer(core, ask("b", ids, seed=4))[0]
    assert core.stats.shared_tokens == 39
    assert compare(mla, [(ids, tokens(completion))]).max_dlogp <= 1e-5


def test_a_stop_token_ends_and_is_part_of_the_completion(mla: CausalLM) -> None:
    ids = prompt(0, 10)
    free = tokens(answer(EngineCore(mla, SETTINGS), ask("s", ids, max_tokens=30))[0]).ids
    stop = free[7]
    completion = answer(EngineCore(mla, SETTINGS), ask("s", ids, max_tokens=30, stop_ids=(VOCAB - 1, stop)))[0]
    assert completion.finish == "stop" and tokens(completion).ids == free[: free.index(stop) + 1]
    assert completion.usage.output_tokens == free.index(stop) + 1
    cut = answer(EngineCore(mla, SETTINGS), ask("s", ids, max_tokens=5))[0]
    assert cut.finish == "length" and tokens(cut).ids == free[:5]


def test_stops_belong_to_their_own_request(mla: CausalLM) -> None:
    ids = prompt(0, 10)
    free = tokens(answer(EngineCore(mla, SETTINGS), ask("s", ids))[0]).ids
    stopped, unstopped = answer(
        EngineCore(mla, SETTINGS), ask("a", ids, stop_ids=tuple(range(VOCAB))), ask("b", ids, stop_ids=())
    )
    assert tokens(stopped).ids == free[:1] and tokens(unstopped).ids == free


def test_a_full_slot_ends_the_completion(mla: CausalLM) -> None:
    completion = answer(EngineCore(mla, settings(max_len=16)), ask("s", prompt(0, 10), max_tokens=50))[0]
    assert completion.finish == "length" and len(tokens(completion).ids) == 6


def test_frequencies_of_first_tokens_follow_the_model(mla: CausalLM) -> None:
    """Chi-square over the model's own distribution, tail tokens pooled so that every cell expects at least 10."""
    ids, draws = prompt(0, 24), 1500
    core = EngineCore(mla, settings(max_slots=64, max_batch=64))
    done = answer(core, *(ask(f"s{n}", ids, max_tokens=1, seed=n) for n in range(draws)))
    seen = Counter(tokens(completion).ids[0] for completion in done)
    expected = mla(torch.tensor([ids])).logits[0, -1].softmax(-1).detach().numpy() * draws
    large = [token for token in range(VOCAB) if expected[token] >= 10]
    cells = [(seen[token], expected[token]) for token in large]
    cells.append((draws - sum(seen[token] for token in large), draws - sum(expected[token] for token in large)))
    statistic = sum((observed - mean) ** 2 / mean for observed, mean in cells)
    assert len(cells) > 5 and statistic < len(cells) + 5 * (2 * len(cells)) ** 0.5  # five standard deviations


def test_more_requests_than_slots_all_finish_and_none_is_lost(mla: CausalLM) -> None:
    core = EngineCore(mla, settings(max_slots=4, max_batch=3))
    done = answer(core, *(ask(f"s{n % 20}", prompt(n, 5 + n % 11), max_tokens=1 + n % 9, seed=n) for n in range(50)))
    assert [len(tokens(completion).ids) for completion in done] == [1 + n % 9 for n in range(50)]
    assert core.stats.finished == 50 and not core.busy
    assert core.stats.reading()["mean_batch"] <= 3


def test_abort_gives_what_there_is_and_frees_the_slot(mla: CausalLM) -> None:
    core = EngineCore(mla, settings(max_slots=1, max_batch=1))
    running, waiting = core.submit(ask("a", prompt(0, 5), max_tokens=100)), core.submit(ask("b", prompt(1, 5)))
    for _ in range(3):
        assert core.step() == []
    partial = core.abort(running)
    assert partial is not None and partial.finish == "abort" and len(tokens(partial).ids) == 4
    assert core.abort(running) is None
    done = drain(core)
    assert len(tokens(done[waiting]).ids) == 12
    queued = core.submit(ask("c", prompt(2, 5)))
    gone = core.abort(queued)
    assert gone is not None and tokens(gone).ids == [] and not core.busy
    assert core.stats.aborted == 2


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"prompt_ids": ()}, "prompt is empty"),
        ({"prompt_ids": (0,) * 128}, "128 tokens, the engine holds 128"),
        ({"prompt_ids": (3, VOCAB)}, "outside the vocabulary"),
        ({"prompt_ids": (3, -1)}, "outside the vocabulary"),
        ({"max_tokens": 0}, "max_tokens is 0"),
        ({"temperature": -1.0}, "temperature is -1.0"),
        ({"temperature": float("nan")}, "temperature is nan"),
        ({"extra": {"top_p": 0.0}}, "top_p is 0.0"),
        ({"extra": {"top_p": 1e-46}}, "top_p is 1e-46; it must lie between"),  # 0 in fp32
        ({"extra": {"top_p": float("nan")}}, "top_p is nan"),
    ],
)
def test_impossible_requests_are_the_requests_fault(mla: CausalLM, changes: dict[str, object], why: str) -> None:
    core = EngineCore(mla, SETTINGS)
    request = ask("s", (1, 2))
    for name, value in changes.items():
        object.__setattr__(request, name, value)
    with pytest.raises(PolicyError, match=why) as raised:
        core.submit(request)
    assert not raised.value.infra and not core.busy
