"""A retry gets the first answer; what is no retry is a sample of its own; who goes away ends the sampling."""

from __future__ import annotations

import asyncio
from typing import Any, Callable

import httpx
import openai
import pytest
from captured import BASH, Endpoint, Serve, TokenPolicy, run  # pyright: ignore[reportMissingImports]

from etude.core.trace.reader import read_session

BODY: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "tools": [BASH]}


@pytest.fixture
def policy(make_renderer: Callable[..., Any]) -> TokenPolicy:
    """Every sampling says another command."""
    made = TokenPolicy(make_renderer("qwen3-coder"), lambda request: run(f"step {len(made.requests)}"))
    return made


async def post(endpoint: Endpoint, key: str, **headers: str) -> httpx.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return await endpoint.http.post(
        "/v1/chat/completions", json=BODY, headers={"authorization": f"Bearer {key}", **named}
    )


def said(got: httpx.Response) -> str:
    assert got.status_code == 200, got.text
    return got.json()["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"]


async def test_a_retry_of_the_sdk_is_replayed_and_a_new_request_is_sampled(served: Serve, policy: TokenPolicy) -> None:
    async with served(policy, policy._renderer) as endpoint:
        session, key = await endpoint.session()
        first = said(await post(endpoint, key, x_stainless_retry_count="0"))
        assert said(await post(endpoint, key, x_stainless_retry_count="1")) == first
        assert said(await post(endpoint, key, x_stainless_retry_count="0")) != first
        summary = await session.end()
    assert len(policy.requests) == 2
    assert (summary["turns"], summary["replayed"], summary["branches"]) == (2, 1, 2)


async def test_an_idempotency_key_is_one_answer_for_ever(served: Serve, policy: TokenPolicy) -> None:
    async with served(policy, policy._renderer) as endpoint:
        _, key = await endpoint.session()
        first = said(await post(endpoint, key, idempotency_key="k"))
        assert said(await post(endpoint, key)) != first
        assert said(await post(endpoint, key, idempotency_key="k")) == first
        other = {**BODY, "temperature": 0.5}
        headers = {"authorization": f"Bearer {key}", "idempotency-key": "k"}
        reused = await endpoint.http.post("/v1/chat/completions", json=other, headers=headers)
        assert reused.status_code == 422 and "Idempotency-Key" in reused.json()["error"]["message"]
    assert len(policy.requests) == 2


async def test_duplicates_at_the_same_time_join_one_sampling(served: Serve, policy: TokenPolicy) -> None:
    policy.gate = asyncio.Event()
    async with served(policy, policy._renderer) as endpoint:
        session, key = await endpoint.session()
        both = asyncio.gather(post(endpoint, key), post(endpoint, key))
        await until(lambda: session.counters()["joined"] == 1)
        policy.gate.set()
        first, second = await both
        assert said(first) == said(second) and first.json()["id"] == second.json()["id"]
    assert len(policy.requests) == 1


async def test_the_sdk_s_own_time_out_and_retry_is_sampled_once(served: Serve, policy: TokenPolicy) -> None:
    policy.gate = asyncio.Event()
    async with served(policy, policy._renderer) as endpoint:
        session, key = await endpoint.session()
        client = openai.AsyncOpenAI(base_url=f"{endpoint.address}/v1", api_key=key, timeout=0.7, max_retries=2)
        asked = asyncio.create_task(client.chat.completions.create(**BODY))
        await until(lambda: session.counters()["joined"] == 1)  # the first try timed out, the second waits
        policy.gate.set()
        answer = await asked
        assert answer.choices[0].finish_reason == "tool_calls"
        summary = await session.end()
    assert len(policy.requests) == 1 and policy.cancelled == 0
    assert (summary["turns"], summary["samples"]) == (1, 1)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_goes_away_ends_its_sampling(served: Serve, policy: TokenPolicy, stream: bool) -> None:
    policy.gate = asyncio.Event()
    async with served(policy, policy._renderer, grace_s=0.1) as endpoint:
        session, key = await endpoint.session()
        headers = {"authorization": f"Bearer {key}"}
        async with httpx.AsyncClient(base_url=endpoint.address) as http:
            with pytest.raises((httpx.ReadTimeout, httpx.ReadError)):  # the second since Python 3.13
                await http.post("/v1/chat/completions", json={**BODY, "stream": stream}, headers=headers, timeout=0.5)
        await until(lambda: policy.cancelled == 1)
        policy.gate.set()
        assert said(await post(endpoint, key)) == '{"command": "step 2"}', (
            "an answer that was not received is no answer"
        )
        summary = await session.end()
    assert (summary["cancelled"], summary["turns"]) == (1, 1)
    assert [entry.data["kind"] for entry in read_session(session.path).of("fault")] == ["Disconnected"]


async def test_a_session_that_ends_cancels_what_is_sampled_and_its_file_never_changes(
    served: Serve, policy: TokenPolicy
) -> None:
    policy.gate = asyncio.Event()
    async with served(policy, policy._renderer) as endpoint:
        session, key = await endpoint.session()
        late = asyncio.create_task(post(endpoint, key))
        await until(lambda: bool(policy.requests))
        await session.end()
        sealed = session.path.read_bytes()
        assert (await late).status_code == 409
        policy.gate.set()
        assert (await post(endpoint, key)).status_code == 409
        assert await session.end() == session.summary
    assert session.path.read_bytes() == sealed and policy.cancelled == 1
    assert read_session(session.path).entries[-1].type == "end"


async def test_a_long_wait_keeps_a_stream_alive_and_tells_its_error_within(
    served: Serve, policy: TokenPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("etude.agent.proxy.exchange.PATIENCE_S", 0.05)
    policy.gate = asyncio.Event()
    async with served(policy, policy._renderer) as endpoint:
        session, key = await endpoint.session()
        client = openai.AsyncOpenAI(base_url=f"{endpoint.address}/v1", api_key=key, timeout=5)
        stream = await client.chat.completions.create(**BODY, stream=True)
        asyncio.get_running_loop().call_later(0.2, policy.gate.set)
        assert [chunk.choices[0].finish_reason async for chunk in stream][-1] == "tool_calls"
        policy.gate = asyncio.Event()
        other: Any = {**BODY, "temperature": 0.1}
        stream = await client.chat.completions.create(**other, stream=True)
        asyncio.get_running_loop().call_later(0.2, lambda: asyncio.ensure_future(session.end()))
        with pytest.raises(openai.APIError, match="session ended"):
            async for _ in stream:
                pass


async def test_sub_agents_at_the_same_time_are_sampled_side_by_side(served: Serve, policy: TokenPolicy) -> None:
    policy.gate = asyncio.Event()
    async with served(policy, policy._renderer) as endpoint:
        session, key = await endpoint.session()

        async def ask(i: int) -> httpx.Response:
            body = {
                **BODY,
                "messages": [{"role": "system", "content": "You help."}, {"role": "user", "content": str(i)}],
            }
            headers = {"authorization": f"Bearer {key}"}
            return await endpoint.http.post("/v1/chat/completions", json=body, headers=headers)

        asked = [asyncio.create_task(ask(i)) for i in range(8)]
        await until(lambda: len(policy.requests) == 8)
        policy.gate.set()
        assert [(await each).status_code for each in asked] == [200] * 8
        summary = await session.end()
    assert (summary["branches"], summary["samples"], summary["forks"]) == (8, 8, 0)
    kept = read_session(session.path)
    assert len([e for e in kept.of("message") if e.data["role"] == "system"]) == 1, "they share their system prompt"
    ids = [call["id"] for e in kept.of("completion") for call in e.data["message"]["calls"]]
    assert len(set(ids)) == 8, "ids of calls are unique in the session"


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not true():
            await asyncio.sleep(0.01)


async def test_a_session_that_can_not_be_written_gives_no_turns_out(served: Serve, policy: TokenPolicy) -> None:
    async with served(policy, policy._renderer) as endpoint:
        session, key = await endpoint.session()
        session.path.mkdir()  # where the file should be
        got = await post(endpoint, key)
        assert got.status_code == 500 and "can't be written" in got.json()["error"]["message"]
        session.path.rmdir()
        assert said(await post(endpoint, key)) == '{"command": "step 1"}'
