"""vLLM over a checkpoint directory as a policy: without vLLM (a program replaces its process), and, nightly, with the real one."""

from __future__ import annotations

import asyncio
import json
import time

import pytest
from engine_lab import ask, small_model
from vllm_lab import CHECKPOINT, checkpoint_of, settings, stand_in, vllm_python

from etude.agent.policy.protocol import Policy, PolicyError
from etude.learn.engine.policy import EnginePolicy
from etude.learn.engine.probe import compare, probe_prompts
from etude.learn.engine.settings import EngineSettings
from etude.learn.engine.vllm.policy import VllmPolicy
from etude.learn.model.checkpoint import CheckpointError, load_checkpoint

LIMIT_S = 240.0  # vLLM starts within it, on busy cores too


@pytest.fixture
def policy(tmp_path, monkeypatch):
    """Over a program that replaces vLLM."""
    monkeypatch.setenv("STAND_IN_TOLD", str(tmp_path / "program_log"))
    checkpoint = checkpoint_of(small_model("qwen3_moe"), tmp_path / "checkpoint")
    made = VllmPolicy(checkpoint, settings(stand_in(tmp_path), max_len=40), tmp_path / "log")
    yield made
    made.close()


def complete(policy: Policy, *requests):
    """What becomes of requests that are sent at once: completions and errors, in order."""

    async def together():
        asked = (policy.complete(request) for request in requests)
        return await asyncio.wait_for(asyncio.gather(*asked, return_exceptions=True), LIMIT_S)

    return asyncio.run(together())


def test_turns_are_answered_at_once_by_the_weights_of_the_directory(policy):
    first, second = complete(policy, ask("a", (1, 2, 3), max_tokens=2), ask("b", (1,) * 5, max_tokens=1))
    assert first.tokens.ids == [3, 3] and second.tokens.ids == [5]
    assert first.tokens.versions == [0, 0], "the directory's weights are version 0, as in our engine"


@pytest.mark.parametrize("prompt", [(), (1,) * 40, (13,)], ids=["empty", "too-long", "by-vllm"])
def test_a_turn_that_cannot_be_served_is_the_requests_fault(policy, prompt):
    (refused,) = complete(policy, ask("a", prompt))
    assert isinstance(refused, PolicyError) and not refused.infra


def test_when_its_process_ends_every_open_turn_and_every_later_one_is_an_infrastructure_error(policy):
    never, last = complete(policy, ask("a", (7,)), ask("b", (66,)))
    (later,) = complete(policy, ask("c", (1,)))
    for error in (never, last, later):
        assert isinstance(error, PolicyError) and error.infra and "it had to come; see " in str(error)


def test_closing_fails_open_turns(policy):
    async def closed():
        open_turn = asyncio.create_task(policy.complete(ask("a", (7,))))
        await asyncio.sleep(0.2)
        policy.close()
        return await asyncio.wait_for(asyncio.gather(open_turn, return_exceptions=True), LIMIT_S)

    (error,) = asyncio.run(closed())
    assert isinstance(error, PolicyError) and error.infra


async def cancelled(policy: VllmPolicy, request) -> None:
    """Asks, and cancels the call while vLLM is at it."""
    turn = asyncio.create_task(policy.complete(request))
    await asyncio.sleep(0.2)
    turn.cancel()
    await asyncio.gather(turn, return_exceptions=True)
    assert turn.cancelled()
    until_s = time.monotonic() + LIMIT_S
    while policy._turns.tally._in_flight:
        assert time.monotonic() < until_s, "the turn is still counted as running"
        await asyncio.sleep(0.02)


def test_a_cancelled_call_ends_its_turn_in_vllm(policy, tmp_path):
    asyncio.run(cancelled(policy, ask("a", (7,))))
    said = [json.loads(line) for line in (tmp_path / "program_log").read_text().splitlines()]
    assert [(one["do"], one["n"]) for one in said] == [("ask", 1), ("abort", 1)]
    (after,) = complete(policy, ask("a", (1, 2)))
    assert after.tokens.ids, "the session goes on"


def test_a_call_that_is_cancelled_as_its_process_ends_is_only_cancelled(policy):
    async def both():
        turn = asyncio.create_task(policy.complete(ask("a", (7,))))
        await asyncio.sleep(0.2)
        policy.close()
        turn.cancel()
        await asyncio.gather(turn, return_exceptions=True)
        return turn

    assert asyncio.run(both()).cancelled()


def test_a_session_that_is_over_is_released(policy, tmp_path):
    complete(policy, ask("a", (1,)))
    asyncio.run(policy.release("a"))
    complete(policy, ask("a", (1,)))
    salts = [json.loads(line)["salt"] for line in (tmp_path / "program_log").read_text().splitlines()]
    assert salts == ["since 0", "since 0"], "weights never change, so sessions share what they begin with"


def test_a_directory_of_an_adapter_is_refused_before_anything_starts(tmp_path):
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    base = checkpoint_of(small_model("qwen3_moe"), tmp_path / "base")
    (adapter / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": str(base), "r": 2}))
    (adapter / "adapter_model.safetensors").write_bytes(b"")
    with pytest.raises(CheckpointError, match="it holds an adapter: merge it first"):
        VllmPolicy(adapter, settings("/no/python"), tmp_path / "log")
    assert not (tmp_path / "log").exists()


@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_the_real_vllm_samples_no_more_for_a_cancelled_call(tmp_path):
    policy = VllmPolicy(CHECKPOINT, settings(vllm_python()), tmp_path / "log")
    prompt = probe_prompts(768)[0]
    try:
        (first,) = complete(policy, ask("warm", prompt, max_tokens=4))
        asyncio.run(cancelled(policy, ask("long", prompt, max_tokens=900, temperature=0.0)))
        (after,) = complete(policy, ask("next", prompt, max_tokens=4, temperature=0.0))
        figures = policy._turns.tally.reading()
    finally:
        policy.close()
    assert len(first.tokens.ids) == len(after.tokens.ids) == 4
    assert (figures["requests"], figures["finished"], figures["sampled_tokens"]) == (3, 2, 8)


@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_the_real_vllm_samples_from_the_distribution_of_the_directory(tmp_path):
    prompts = probe_prompts(768)
    sampled = [ask(f"s{n}", ids, max_tokens=48, temperature=1.0, seed=n) for n, ids in enumerate(prompts)]
    greedy = [ask(f"g{n}", ids, max_tokens=48, temperature=0.0) for n, ids in enumerate(prompts)]
    policy = VllmPolicy(CHECKPOINT, settings(vllm_python()), tmp_path / "log")
    try:
        found, likeliest = complete(policy, *sampled), complete(policy, *greedy)
    finally:
        policy.close()
    model = load_checkpoint(CHECKPOINT)
    mismatch = compare(model, [(ids, done.tokens) for ids, done in zip(prompts, found, strict=True)])
    assert mismatch.tokens == 48 * len(prompts) and mismatch.mean_k3 <= 1e-7
    ours = EnginePolicy.start(model, EngineSettings())
    try:
        expected = complete(ours, *greedy)
    finally:
        ours.close()
    assert [done.tokens.ids for done in likeliest] == [done.tokens.ids for done in expected]
