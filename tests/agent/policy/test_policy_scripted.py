"""Policies without a model: scripts per session, and chaos that replays from its seed."""

from __future__ import annotations

import asyncio
import time

import pytest

from etude.agent.policy.chaos import ChaosPolicy, ChaosRates
from etude.agent.policy.protocol import PolicyError, Request
from etude.agent.policy.scripted import EchoPolicy, ScriptedPolicy
from etude.core.trace.completion import Completion, SampledTokens
from etude.core.trace.message import Message, ToolCall


def request(session: str = "s", text: str = "hi") -> Request:
    return Request(session, (Message("user", text),))


async def test_a_script_is_played_for_each_session_and_its_end_is_the_scripts_fault() -> None:
    policy = ScriptedPolicy([Message("assistant", "1"), Message("assistant", "2")])
    texts = [(await policy.complete(request(s))).message.text for s in ("a", "b", "a")]  # pyright: ignore
    assert texts == ["1", "1", "2"]
    with pytest.raises(PolicyError, match="2 answers and turn 3") as caught:
        await policy.complete(request("a"))
    assert not caught.value.infra
    await policy.release("a")
    assert (await policy.complete(request("a"))).message == Message("assistant", "1")


async def test_a_function_may_answer_from_the_request() -> None:
    policy = ScriptedPolicy(lambda request: Message("assistant", request.messages[-1].text[::-1]))
    assert (await policy.complete(request(text="abc"))).message == Message("assistant", "cba")
    assert (await EchoPolicy().complete(request(text="abc"))).message == Message("assistant", "abc")


def answer(request: Request) -> Completion:
    tokens = SampledTokens([1, 2, 3, 4], [-0.1] * 4, [0] * 4)
    return Completion(Message("assistant", "abcd", calls=(ToolCall("c", "test", {}),)), tokens)


async def fates(seed: int, sessions: list[str], turns: int) -> dict[str, list[str]]:
    rates = ChaosRates(infra=0.2, refuse=0.1, abort=0.1, cut=0.2)
    policy = ChaosPolicy(ScriptedPolicy(answer), rates, seed)
    seen: dict[str, list[str]] = {session: [] for session in sessions}
    for _ in range(turns):
        for session in sessions:
            try:
                done = await policy.complete(request(session))
                seen[session].append(done.finish)
            except PolicyError as error:
                seen[session].append("infra" if error.infra else "refuse")
    assert sum(policy.injected.values()) == sum(fate != "stop" for row in seen.values() for fate in row)
    return seen


async def test_chaos_depends_on_seed_session_and_turn_only() -> None:
    alone = await fates(7, ["a"], 40)
    among = await fates(7, ["b", "a", "c"], 40)
    assert alone["a"] == among["a"] != among["b"]
    assert set(alone["a"]) == {"infra", "refuse", "abort", "length", "stop"}
    assert (await fates(8, ["a"], 40)) != alone


async def test_a_cut_completion_loses_its_second_half_with_its_provenance() -> None:
    done = await ChaosPolicy(ScriptedPolicy(answer), ChaosRates(cut=1), 0).complete(request())
    assert done.tokens is not None and done.message is not None
    assert done.tokens.ids == [1, 2] and len(done.tokens.logprobs) == len(done.tokens.versions) == 2
    assert done.message.text == "ab" and done.message.calls == () and done.message.problem


async def test_chaos_may_only_be_slow() -> None:
    policy = ChaosPolicy(ScriptedPolicy(answer), ChaosRates(slow=1, slow_s=0.02), 0)
    start = time.perf_counter()
    assert (await asyncio.gather(*(policy.complete(request(str(i))) for i in range(5))))[0].finish == "stop"
    assert 0.015 < time.perf_counter() - start < 1
