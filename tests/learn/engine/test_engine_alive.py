"""Signs of life: a request in an engine of ours is reported as alive while the engine works, and only then."""

from __future__ import annotations

import asyncio
import pickle
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest
from engine_lab import ask, prompt, small_model

from etude.agent.policy.protocol import PolicyError, Request
from etude.core.trace.completion import Completion
from etude.learn.engine import batching
from etude.learn.engine.batching import BatchingClient
from etude.learn.engine.core import EngineCore
from etude.learn.engine.policy import EnginePolicy
from etude.learn.engine.settings import EngineSettings

LOOK_S = 0.01
SETTINGS = EngineSettings(max_slots=2, max_batch=2, max_len=512)


@pytest.fixture(autouse=True)
def short_looks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(batching, "LOOK_S", LOOK_S)
    yield


async def test_a_turn_in_the_engine_of_this_process_is_alive_while_steps_end() -> None:
    signs: list[int] = []
    policy = EnginePolicy.start(small_model("deepseek_v3"), SETTINGS)
    request = replace(ask("s", prompt(0, 5), max_tokens=200), on_alive=lambda: signs.append(1))
    done = await policy.complete(request)
    assert done.usage.output_tokens == 200 and len(signs) > 3
    policy.close()


async def test_an_engine_whose_step_does_not_end_gives_no_sign(monkeypatch: pytest.MonkeyPatch) -> None:
    def hang(core: EngineCore) -> list[tuple[int, Completion]]:
        time.sleep(0.5)
        return step(core)

    step = EngineCore.step
    monkeypatch.setattr(EngineCore, "step", hang)
    signs: list[int] = []
    policy = EnginePolicy.start(small_model("deepseek_v3"), SETTINGS)
    turn = asyncio.create_task(policy.complete(replace(ask("s", prompt(0, 5)), on_alive=lambda: signs.append(1))))
    await asyncio.sleep(0.3)
    assert not signs
    turn.cancel()
    with pytest.raises(asyncio.CancelledError):
        await turn
    policy.close()


async def test_a_turn_in_another_process_is_alive_while_its_engine_answers_polls() -> None:
    asked: list[Request] = []

    async def submit(requests: list[tuple[int, Request]]) -> None:
        asked.extend(request for _, request in pickle.loads(pickle.dumps(requests)))

    async def poll() -> list[tuple[int, Completion | PolicyError]]:
        polls.append(1)
        await asyncio.sleep(2 * LOOK_S if len(polls) <= 3 else 60.0)
        return []

    async def release(sessions: list[str]) -> None:
        raise AssertionError

    signs: list[int] = []
    polls: list[int] = []
    client = BatchingClient(submit, poll, release)
    request = replace(ask("s", prompt(0, 5)), on_alive=lambda: signs.append(1))
    turn = asyncio.create_task(client.complete(request))
    while len(polls) < 4:
        await asyncio.sleep(LOOK_S)
    await asyncio.sleep(5 * LOOK_S)
    before = len(signs)
    await asyncio.sleep(5 * LOOK_S)
    assert 1 <= before <= 3 and len(signs) == before and [request.on_alive for request in asked] == [None]
    await client.close()
    with pytest.raises(PolicyError, match="closed"):
        await turn
