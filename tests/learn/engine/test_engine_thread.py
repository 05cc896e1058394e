"""The engine's thread and the policies over it: every request is answered once, whatever happens."""

from __future__ import annotations

import asyncio
import pickle
import threading
import time
from concurrent.futures import Future
from pathlib import Path

import pytest
import torch
from engine_lab import ask, prompt, small_model

from etude.agent.policy.protocol import Policy, PolicyError, Request
from etude.core.trace.completion import Completion
from etude.learn.engine import service
from etude.learn.engine.batching import BatchingClient
from etude.learn.engine.core import EngineCore
from etude.learn.engine.policy import EnginePolicy
from etude.learn.engine.service import EngineService, EngineThread, leave_cores_to_engine
from etude.learn.engine.settings import EngineSettings
from etude.learn.weights.errors import WeightsError
from etude.learn.weights.publisher import Publisher
from etude.learn.weights.state import state_digest
from etude.learn.weights.store import WeightStore

SETTINGS = EngineSettings(max_slots=8, max_batch=8, max_len=128)
FOREVER = 5000  # max_tokens of a request that ends by max_len at the earliest


def core(**changes: object) -> EngineCore:
    return EngineCore(small_model("deepseek_v3"), SETTINGS.model_copy(update=changes))


async def test_concurrent_turns_are_answered_each_by_its_own() -> None:
    policy: Policy = EnginePolicy.start(small_model("deepseek_v3"), SETTINGS)
    assert policy.takes_tokens
    requests = [ask(f"s{n}", prompt(n, 5), max_tokens=1 + n % 7, seed=n) for n in range(30)]
    done = await asyncio.gather(*(policy.complete(request) for request in requests))
    assert [completion.usage.output_tokens for completion in done] == [1 + n % 7 for n in range(30)]
    alone = await policy.complete(ask("again", prompt(3, 5), max_tokens=4, seed=3))
    assert alone.tokens is not None and done[3].tokens is not None and alone.tokens.ids == done[3].tokens.ids
    policy.close()  # type: ignore[attr-defined]


async def test_closing_stops_the_thread_and_fails_open_requests_as_infra() -> None:
    policy = EnginePolicy.start(small_model("deepseek_v3"), SETTINGS.model_copy(update={"max_len": 256}))
    turn = asyncio.create_task(policy.complete(ask("s", prompt(0, 5), max_tokens=FOREVER)))
    await asyncio.sleep(0.02)
    policy.close()
    policy.close()
    assert not policy.thread.alive and "engine" not in [thread.name for thread in threading.enumerate()]
    with pytest.raises(PolicyError, match="closed") as raised:
        await turn
    assert raised.value.infra
    with pytest.raises(PolicyError, match="closed"):
        await policy.complete(ask("s", prompt(0, 5)))


async def test_a_failing_step_fails_everything_as_infra_and_nothing_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = EnginePolicy.start(small_model("deepseek_v3"), SETTINGS)

    def broken(self: EngineCore) -> None:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(EngineCore, "step", broken)
    results = await asyncio.gather(
        *(policy.complete(ask(f"s{n}", prompt(n, 5))) for n in range(4)), return_exceptions=True
    )
    assert all(isinstance(r, PolicyError) and r.infra and "out of memory" in str(r) for r in results)
    with pytest.raises(PolicyError, match="out of memory"):
        await policy.complete(ask("later", prompt(0, 5)))
    assert not policy.thread.alive
    with pytest.raises(PolicyError, match="out of memory"):
        policy.thread.call(lambda core: core.version).result(timeout=5)


async def test_an_impossible_request_fails_alone_and_is_not_infra() -> None:
    policy = EnginePolicy.start(small_model("deepseek_v3"), SETTINGS)
    good = asyncio.create_task(policy.complete(ask("s", prompt(0, 5))))
    with pytest.raises(PolicyError, match="prompt is empty") as raised:
        await policy.complete(ask("bad", ()))
    assert not raised.value.infra
    assert (await good).usage.output_tokens == 12
    policy.close()


async def test_a_cancelled_turn_leaves_the_engine() -> None:
    policy = EnginePolicy.start(small_model("deepseek_v3"), SETTINGS.model_copy(update={"max_slots": 1}))
    turn = asyncio.create_task(policy.complete(ask("s", prompt(0, 5), max_tokens=FOREVER)))
    await asyncio.sleep(0.01)
    turn.cancel()
    with pytest.raises(asyncio.CancelledError):
        await turn
    await policy.complete(ask("next", prompt(1, 5), max_tokens=1))
    stats = await asyncio.wrap_future(policy.thread.call(lambda core: core.stats))
    assert stats.aborted == 1
    policy.close()


async def test_released_sessions_give_their_slots_back() -> None:
    policy = EnginePolicy.start(small_model("deepseek_v3"), SETTINGS.model_copy(update={"max_slots": 2}))
    for n in range(6):
        await policy.complete(ask(f"s{n}", prompt(n, 5), max_tokens=2))
        await policy.release(f"s{n}")
    stats = await asyncio.wrap_future(policy.thread.call(lambda core: core.stats))
    assert stats.evictions == 0
    policy.close()


class FakeActor:
    """The service as a remote caller sees it: every call goes through a thread, all arguments and results through pickle."""

    def __init__(self, service: EngineService) -> None:
        self.service = service
        self.submitted: list[int] = []
        self.polled: list[int] = []

    async def submit_many(self, requests: list[tuple[int, Request]]) -> None:
        self.submitted.append(len(requests))
        await asyncio.to_thread(self.service.submit_many, "test", pickle.loads(pickle.dumps(requests)))

    async def poll(self) -> list[tuple[int, Completion | PolicyError]]:
        results = await asyncio.to_thread(self.service.poll, "test", 1.0)
        self.polled.append(len(results))
        return pickle.loads(pickle.dumps(results))

    async def release_many(self, sessions: list[str]) -> None:
        await asyncio.to_thread(self.service.release_many, sessions)


async def test_turns_travel_in_lists_both_ways() -> None:
    actor = FakeActor(EngineService(core()))
    client = BatchingClient(actor.submit_many, actor.poll, actor.release_many)
    requests = [ask(f"s{n}", prompt(n, 5), max_tokens=3, seed=n) for n in range(24)]
    done = await asyncio.gather(*(client.complete(request) for request in requests))
    assert all(completion.usage.output_tokens == 3 for completion in done)
    assert actor.submitted == [24] and max(actor.polled) >= 8
    with pytest.raises(PolicyError, match="prompt is empty") as raised:
        await client.complete(ask("bad", ()))
    assert not raised.value.infra  # the flag survives the trip
    for request in requests:
        await client.release(request.session_id)
    assert (await client.complete(requests[0])).usage.cached_tokens < 7  # its slot went to others long ago
    await client.close()
    actor.service.close()


async def test_a_lost_engine_is_an_infra_fault_of_every_open_turn() -> None:
    async def submit(requests: list[tuple[int, Request]]) -> None:
        return None

    async def lost() -> list[tuple[int, Completion | PolicyError]]:
        await asyncio.sleep(0.05)
        raise ConnectionError("actor died")

    async def release(sessions: list[str]) -> None:
        return None

    client = BatchingClient(submit, lost, release)
    results = await asyncio.gather(
        *(client.complete(ask(f"s{n}", prompt(n, 5))) for n in range(3)), return_exceptions=True
    )
    assert all(isinstance(r, PolicyError) and r.infra and "actor died" in str(r) for r in results)
    await client.close()


async def test_closing_the_client_fails_open_turns() -> None:
    actor = FakeActor(EngineService(core(max_len=256)))
    client = BatchingClient(actor.submit_many, actor.poll, actor.release_many)
    turn = asyncio.create_task(client.complete(ask("s", prompt(0, 5), max_tokens=FOREVER)))
    await asyncio.sleep(0.02)
    await client.close()
    with pytest.raises(PolicyError, match="closed"):
        await turn
    actor.service.close()


def test_the_service_follows_a_weight_store_while_it_serves(tmp_path: Path) -> None:
    store = WeightStore(tmp_path)
    publisher, trained = Publisher(store), small_model("deepseek_v3", seed=1)
    service = EngineService(core(), store)
    publisher.join("engine")
    with pytest.raises(WeightsError, match="no version at all"):
        service.stage()
    assert service.apply() == 0  # nothing staged, nothing changes
    for version in (1, 2, 3):
        with torch.no_grad():
            for parameter in trained.parameters():
                parameter.add_(1e-3)
        publisher.publish(trained.state_dict(), version)
        service.submit_many("test", [(version, ask(f"s{version}", prompt(version, 5), max_tokens=60))])
        assert service.stage() == version
        assert service.apply() == version
        publisher.acknowledge("engine", version)
        assert publisher.base == version
    assert service.stats()["version"] == 3
    live = service._thread.call(lambda core: state_digest(core.model.state_dict())).result()
    assert live == state_digest(trained.state_dict())
    answered = 0
    while answered < 3:
        answered += len(service.poll("test"))
    service.close()
    assert service.poll("test", 0.01) == []


def test_a_poll_returns_empty_handed_after_its_time() -> None:
    service = EngineService(core())
    assert service.poll("unknown", timeout_s=0.01) == []
    service.close()


def test_calls_run_between_steps_and_their_errors_are_the_callers() -> None:
    with EngineThread(core()) as thread:
        with pytest.raises(ZeroDivisionError):
            thread.call(lambda core: 1 // 0).result(timeout=5)
        assert thread.call(lambda core: core.version).result(timeout=5) == 0
        assert thread.alive


def test_a_thin_batch_waits_for_company_and_a_full_one_for_nothing() -> None:
    engine = core(company=2, tick_s=60.0)
    thread = EngineThread(engine)  # not started: only its decisions are asked
    assert thread._wait_s() is None
    engine.submit(ask("a", prompt(0, 5), max_tokens=3))
    assert thread._wait_s() == 0.0, "the first step is due at once"
    engine.step()
    thread._next_step_at = time.monotonic() + 60.0
    assert 50.0 < (thread._wait_s() or 0.0) <= 60.0
    engine.submit(ask("b", prompt(1, 5), max_tokens=3))
    assert thread._wait_s() == 0.0


async def test_ticks_change_when_tokens_come_never_which() -> None:
    answers = []
    for tick_s in (0.0, 0.01):
        changed = SETTINGS.model_copy(update={"company": 8, "tick_s": tick_s})
        policy = EnginePolicy.start(small_model("deepseek_v3"), changed)
        turns = (policy.complete(ask(f"s{n}", prompt(n, 5), max_tokens=6, seed=n)) for n in range(3))
        answers.append([completion.tokens.ids for completion in await asyncio.gather(*turns) if completion.tokens])
        policy.close()
    assert answers[0] == answers[1] and len(answers[0]) == 3


@pytest.mark.parametrize(("pause_s", "expected"), [(0.0, [2] + [1] * 17), (60.0, [2])])
def test_a_stream_gets_its_first_token_at_once_and_later_ones_together(
    pause_s: float, expected: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "DELIVERY_S", pause_s)
    monkeypatch.setattr(service, "DELIVERIES_PER_S", float("inf"))
    pieces: list[list[int]] = []
    end: Future[Completion | PolicyError] = Future()
    with EngineThread(core()) as thread:
        request = ask("s", prompt(0, 5), max_tokens=20)
        thread.submit(request, end.set_result, lambda tokens: pieces.append(list(tokens.ids)))
        done = end.result(timeout=60)
    assert isinstance(done, Completion) and done.tokens is not None
    assert [len(piece) for piece in pieces] == expected
    assert [token for piece in pieces for token in piece] == list(done.tokens.ids)[: sum(expected)]


def test_tokens_between_two_deliveries_come_in_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "DELIVERY_S", 60.0)
    engine, pieces = core(), []
    thread = EngineThread(engine)  # not started: its steps are taken here
    thread._enter(
        ask("s", prompt(0, 5), max_tokens=20), lambda _: None, Future(), lambda tokens: pieces.append(len(tokens.ids))
    )
    for _ in range(6):
        thread._step()
    thread._next_delivery_at = time.monotonic()
    thread._step()
    assert pieces == [2, 6]


def test_a_process_that_only_samples_leaves_its_threads_to_the_engine() -> None:
    before = torch.get_num_threads()
    try:
        leave_cores_to_engine()
        assert torch.get_num_threads() == 1
        with EngineThread(core(threads=2)) as thread:
            assert thread.call(lambda _: torch.get_num_threads()).result() == 2
    finally:
        torch.set_num_threads(before)
