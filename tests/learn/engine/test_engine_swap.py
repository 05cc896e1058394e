"""Weights change between two tokens: later tokens come from the new ones and say so; the cache is kept or computed again."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest
import torch
from engine_lab import answer, ask, drain, prompt, small_model

from etude.core.trace.completion import Completion, SampledTokens
from etude.learn.engine.core import EngineCore
from etude.learn.engine.settings import EngineSettings
from etude.learn.formats.mxfp8 import round_to_mxfp8
from etude.learn.formats.nvfp4 import round_to_nvfp4
from etude.learn.model.causal_lm import CausalLM

BEFORE = 5  # tokens sampled before the swap
TOTAL = 12


def swapped(swap_cache: str, requests: int = 1) -> tuple[EngineCore, list[Completion]]:
    """Requests that sample BEFORE tokens under version 1 and the rest under version 2."""
    core = EngineCore(
        small_model("deepseek_v3"), EngineSettings.model_validate({"max_len": 64, "swap_cache": swap_cache}), version=1
    )
    tickets = [core.submit(ask(f"s{n}", prompt(n, 9 + n), max_tokens=TOTAL, seed=n)) for n in range(requests)]
    for _ in range(BEFORE - 1):  # the first step samples two: prefill and decode
        core.step()
    core.swap(small_model("deepseek_v3", seed=1).state_dict(), 2)
    done = drain(core)
    return core, [done[ticket] for ticket in tickets]


def sampled(completion: Completion) -> SampledTokens:
    assert completion.tokens is not None
    return completion.tokens


def forward_logprobs(model: CausalLM, row: int, tokens: SampledTokens) -> np.ndarray:
    ids = [*prompt(row, 9 + row), *tokens.ids]
    logits = model(torch.tensor([ids])).logits[0, -len(tokens.ids) - 1 : -1]
    return logits.log_softmax(-1).gather(1, torch.tensor(tokens.ids).unsqueeze(1)).squeeze(1).detach().numpy()


@pytest.mark.parametrize("swap_cache", ["keep", "recompute"])
def test_tokens_after_the_swap_carry_the_new_version(swap_cache: str) -> None:
    core, done = swapped(swap_cache, requests=3)
    for completion in done:
        assert sampled(completion).versions == [1] * BEFORE + [2] * (TOTAL - BEFORE)
    assert core.stats.swaps == 1 and core.stats.inflight_swaps == 3
    after = answer(core, ask("later", prompt(50, 9)))[0]
    assert set(sampled(after).versions) == {2} and core.stats.inflight_swaps == 3


def test_with_a_recomputed_cache_later_tokens_are_the_new_models_alone() -> None:
    _, done = swapped("recompute", requests=3)
    old, new = small_model("deepseek_v3"), small_model("deepseek_v3", seed=1)
    for row, completion in enumerate(done):
        tokens = sampled(completion)
        reported = np.array(tokens.logprobs)
        assert np.allclose(reported[:BEFORE], forward_logprobs(old, row, tokens)[:BEFORE], atol=1e-5)
        assert np.allclose(reported[BEFORE:], forward_logprobs(new, row, tokens)[BEFORE:], atol=1e-5)


def test_with_a_kept_cache_the_new_model_reads_the_old_keys() -> None:
    """Recomputed by hand: the old model fills a cache, the new one goes on from there."""
    from etude.learn.model.cache import KVCache

    _, done = swapped("keep")
    tokens, old, new = sampled(done[0]), small_model("deepseek_v3"), small_model("deepseek_v3", seed=1)
    ids = torch.tensor([[*prompt(0, 9), *tokens.ids]])
    cache, one = KVCache(old.config, 1, 64), torch.ones(1, dtype=torch.long)
    forwarded = 9 + BEFORE - 1  # the last token sampled before the swap is forwarded after it
    old.extend(ids[:, :forwarded], one * forwarded, one * 0, cache)
    truth = []
    for at in range(forwarded, 9 + TOTAL - 1):
        logits, _ = new.extend(ids[:, at : at + 1], one, one * 0, cache)
        truth.append(float(logits.log_softmax(-1)[0, ids[0, at + 1]]))
    assert np.allclose(tokens.logprobs[BEFORE:], truth, atol=1e-5)
    assert np.abs(forward_logprobs(new, 0, tokens)[BEFORE:] - np.array(truth)).max() > 1e-3  # keep is not recompute


@pytest.mark.parametrize("swap_cache", ["keep", "recompute"])
def test_routes_stay_those_of_sampling_time(swap_cache: str) -> None:
    core, done = swapped(swap_cache)
    tokens, old = sampled(done[0]), small_model("deepseek_v3")
    routes = old(torch.tensor([[*prompt(0, 9), *tokens.ids]]), return_routes=True).routes
    assert routes is not None and tokens.routes is not None
    before = 9 + BEFORE - 1
    assert np.array_equal(np.sort(tokens.routes[:before]), np.sort(routes[0, :before].numpy()))
    assert len(tokens.routes) == 9 + TOTAL - 1


def test_recompute_forgets_idle_sessions_and_keep_does_not() -> None:
    for swap_cache, cached in (("recompute", 0), ("keep", 9 + TOTAL - 1)):
        core, done = swapped(swap_cache)
        core.swap(small_model("deepseek_v3", seed=2).state_dict(), 3)
        turn = (*prompt(0, 9), *sampled(done[0]).ids, 1, 2)
        assert answer(core, ask("s0", turn))[0].usage.cached_tokens == cached


def test_new_sessions_never_copy_keys_of_older_weights() -> None:
    core = EngineCore(small_model("deepseek_v3"), EngineSettings(max_len=128))
    ids = prompt(0, 40)
    answer(core, ask("a", ids))
    core.swap(small_model("deepseek_v3", seed=1).state_dict(), 1)
    completion = answer(core, ask("b", ids))[0]
    assert core.stats.shared_tokens == 0
    logits = small_model("deepseek_v3", seed=1)(torch.tensor([ids])).logits[0, -1].detach()
    assert abs(float(logits.log_softmax(-1)[sampled(completion).ids[0]]) - sampled(completion).logprobs[0]) < 1e-5


def test_swapped_weights_are_the_senders_bit_for_bit() -> None:
    from etude.learn.weights.state import state_digest

    core, new = EngineCore(small_model("qwen3_moe"), EngineSettings(max_len=64)), small_model("qwen3_moe", seed=1)
    core.swap(new.state_dict(), 1)
    assert state_digest(core.model.state_dict()) == state_digest(new.state_dict())


def test_weights_of_another_model_are_refused_before_any_is_written(mla: CausalLM) -> None:
    core = EngineCore(mla, EngineSettings(max_len=64), version=4)
    before = {name: tensor.clone() for name, tensor in mla.state_dict().items()}
    missing = dict(small_model("deepseek_v3", seed=1).state_dict())
    del missing["head.weight"]
    with pytest.raises(ValueError, match=r"lack head\.weight"):
        core.swap(missing, 5)
    with pytest.raises(ValueError, match=r"carry more\.weight, which the model has not"):
        core.swap({**before, "more.weight": torch.zeros(1)}, 5)
    with pytest.raises(ValueError, match=r"head\.weight is \(97, 32\)"):
        core.swap({**small_model("deepseek_v3", seed=1).state_dict(), "head.weight": torch.zeros(3)}, 5)
    assert core.version == 4
    assert all(torch.equal(tensor, before[name]) for name, tensor in mla.state_dict().items())


@pytest.mark.parametrize("weights", ["mxfp8", "nvfp4"])
@pytest.mark.parametrize("family", ["qwen3_moe", "deepseek_v3"])
def test_an_engine_of_a_block_format_rounds_its_linear_layers_and_experts_and_nothing_else(
    family: str, weights: Literal["mxfp8", "nvfp4"]
) -> None:
    """Along what a product contracts, before and after a swap; what it says of its tokens is of the rounded weights."""
    core = EngineCore(small_model(family), EngineSettings(max_len=64, weights=weights))
    for version, new in enumerate((small_model(family), small_model(family, seed=1)), 1):
        if version > 1:
            core.swap(new.state_dict(), version)
        expected = small_model(family)
        expected.load_state_dict(new.state_dict())
        for name, tensor in expected.state_dict().items():
            left = any(part in name for part in ("norm", "router", "embed", "head"))
            if not left:
                tensor.copy_(round_to_mxfp8(tensor) if weights == "mxfp8" else round_to_nvfp4(tensor, "tensor"))
            served = core.model.state_dict()[name]
            assert torch.equal(served, tensor), name
            assert left == torch.equal(served, new.state_dict()[name]), name
        completion = answer(core, ask(f"s{version}", prompt(0, 9)))[0]
        logits = expected(torch.tensor([prompt(0, 9)])).logits[0, -1].detach().log_softmax(-1)
        assert abs(float(logits[sampled(completion).ids[0]]) - sampled(completion).logprobs[0]) < 1e-5


def test_an_engine_of_lower_precision_serves_the_nearest_weights_before_and_after_a_swap() -> None:
    """What it says of its tokens is of the rounded weights, and the sender's own stay as they are."""
    core = EngineCore(small_model("qwen3_moe"), EngineSettings(max_len=64, weights="bfloat16"))
    for version, new in enumerate((small_model("qwen3_moe"), small_model("qwen3_moe", seed=1)), 1):
        if version > 1:
            core.swap(new.state_dict(), version)
        exact = {name: tensor.clone() for name, tensor in new.state_dict().items()}
        for name, tensor in core.model.state_dict().items():
            assert torch.equal(tensor, exact[name].bfloat16().to(tensor.dtype)), name
        assert all(torch.equal(tensor, exact[name]) for name, tensor in new.state_dict().items())
        assert any(not torch.equal(tensor, exact[name]) for name, tensor in core.model.state_dict().items())
        completion = answer(core, ask(f"s{version}", prompt(0, 9)))[0]
        rounded = small_model("qwen3_moe")
        rounded.load_state_dict({name: tensor.bfloat16().float() for name, tensor in exact.items()})
        logits = rounded(torch.tensor([prompt(0, 9)])).logits[0, -1].detach().log_softmax(-1)
        assert abs(float(logits[sampled(completion).ids[0]]) - sampled(completion).logprobs[0]) < 1e-5
