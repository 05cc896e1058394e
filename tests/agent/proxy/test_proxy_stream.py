"""A stream as it is sampled: pieces before the end, signs of life before the first, and one turn for every reader."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import openai
import pytest
from captured import BASH, Endpoint, Serve, run  # pyright: ignore[reportMissingImports]

from etude.agent.policy.protocol import PolicyError, Request
from etude.agent.policy.wire.anthropic_stream import MessagesAssembly
from etude.agent.policy.wire.sse import EventReader
from etude.agent.proxy import exchange
from etude.core.trace.completion import Completion, SampledTokens
from etude.core.trace.message import Message
from etude.core.trace.reader import read_session

Step = tuple[str, str] | asyncio.Event | Exception


class Speaking:
    """Says pieces, waits at events, raises errors; then its turn is `said`."""

    takes_tokens = False
    name = "speaking"

    def __init__(self, steps: list[Step], said: Message | list[int]) -> None:
        self.steps = steps
        self.said = said
        self.takes_tokens = isinstance(said, list)
        self.asked = 0

    async def complete(self, request: Request) -> Completion:
        self.asked += 1
        for step in self.steps:
            if isinstance(step, asyncio.Event):
                await step.wait()
            elif isinstance(step, Exception):
                raise step
            elif request.on_delta is not None:
                request.on_delta(*step)  # pyright: ignore[reportArgumentType]
        if isinstance(self.said, list):
            count = len(self.said)
            return Completion(tokens=SampledTokens(self.said, [-0.5] * count, [1] * count))
        return Completion(message=self.said)

    async def release(self, session_id: str) -> None: ...


ASKED: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "tools": [BASH], "stream": True}


@asynccontextmanager
async def asking(endpoint: Endpoint, key: str, **more: Any) -> AsyncIterator[AsyncIterator[Any]]:
    """The data of a chat stream's events; None is a sign of life."""
    headers = {"authorization": f"Bearer {key}"}
    async with endpoint.http.stream("POST", "/v1/chat/completions", json=ASKED | more, headers=headers) as got:
        yield _told(got)


async def _told(got: httpx.Response) -> AsyncIterator[Any]:
    reader = EventReader()
    async for received in got.aiter_bytes():
        if received == exchange.PING:
            yield None
        for event in reader.feed(received):
            yield event.data if event.data == "[DONE]" else json.loads(event.data)


def text(row: Any) -> str:
    return (row["choices"][0]["delta"].get("content") or "") if isinstance(row, dict) and row.get("choices") else ""


async def test_pieces_are_sent_while_the_rest_is_sampled(served: Serve) -> None:
    gate = asyncio.Event()
    said = Message("assistant", "one two three", calls=run("ls").calls)
    policy = Speaking([("text", "one "), ("call", "{"), gate, ("text", "two")], said)
    async with served(policy) as endpoint:
        session, key = await endpoint.session()
        async with asking(endpoint, key) as rows:
            pieces = []
            async for row in rows:
                pieces.append(text(row))
                if "".join(pieces) == "one ":
                    gate.set()
                if isinstance(row, dict) and row["choices"][0]["delta"].get("tool_calls"):
                    call = row["choices"][0]["delta"]["tool_calls"][0]["function"]
        assert "".join(pieces) == "one two three" and call == {"name": "bash", "arguments": '{"command": "ls"}'}
        assert session.counters()["turns"] == 1


async def test_a_stream_without_words_shows_signs_of_life(served: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "PATIENCE_S", 0.02)
    gate = asyncio.Event()
    async with served(Speaking([gate, ("text", "a")], Message("assistant", "ab"))) as endpoint:
        _, key = await endpoint.session()
        lives, said = 0, ""
        async with asking(endpoint, key) as rows:
            async for row in rows:
                lives += row is None
                said += text(row)
                if lives == 3:
                    gate.set()
    assert lives >= 3 and said == "ab"


async def test_an_error_before_the_first_piece_is_a_status_and_one_behind_it_is_reported_within(served: Serve) -> None:
    policy = Speaking([PolicyError("too long", infra=False)], Message("assistant"))
    async with served(policy) as endpoint:
        _, key = await endpoint.session()
        client = openai.AsyncOpenAI(base_url=f"{endpoint.address}/v1", api_key=key)
        with pytest.raises(openai.BadRequestError, match="too long"):
            await client.chat.completions.create(**ASKED)
        policy.steps.insert(0, ("text", "so"))
        with pytest.raises(openai.APIError, match="too long"):
            async for _ in await client.chat.completions.create(**ASKED):
                pass


async def test_a_turn_begun_again_breaks_the_stream_and_the_retry_is_shown_all_of_it(served: Serve) -> None:
    gate = asyncio.Event()
    policy = Speaking([("text", "on"), gate, ("text", ""), ("text", "two")], Message("assistant", "two"))
    async with served(policy) as endpoint:
        session, key = await endpoint.session()
        said, broken = "", None
        async with asking(endpoint, key) as rows:
            async for row in rows:
                said += text(row)
                gate.set()
                broken = row["error"]["message"] if isinstance(row, dict) and "error" in row else broken
        assert said == "on" and broken is not None and "started again" in broken
        async with asking(endpoint, key) as rows:
            assert "".join([text(row) async for row in rows]) == "two"
        counters = session.counters()
    assert policy.asked == counters["turns"] == 1 and counters["replayed"] + counters["joined"] == 1


async def test_a_turn_begun_again_before_anyone_heard_it_is_reported_as_it_is(served: Serve) -> None:
    policy = Speaking([("text", "on"), ("text", ""), ("text", "two")], Message("assistant", "two"))
    async with served(policy) as endpoint:
        _, key = await endpoint.session()
        async with asking(endpoint, key) as rows:
            assert "".join([text(row) async for row in rows]) == "two"


async def test_a_client_that_comes_later_hears_the_turn_from_its_beginning(served: Serve) -> None:
    gate = asyncio.Event()
    policy = Speaking([("text", "one "), gate, ("text", "two")], Message("assistant", "one two"))
    async with served(policy) as endpoint:
        session, key = await endpoint.session()

        async def heard() -> str:
            async with asking(endpoint, key) as rows:
                return "".join([text(row) async for row in rows])

        first, second = asyncio.create_task(heard()), asyncio.create_task(heard())
        while session.counters()["joined"] < 1:
            await asyncio.sleep(0.01)
        gate.set()
        assert await first == await second == "one two"
    assert policy.asked == 1


async def test_an_agent_that_repeats_what_it_heard_of_a_malformed_turn_goes_on_with_it(
    served: Serve, make_renderer: Callable[..., Any]
) -> None:
    """Its text is all of the turn, and not how the pieces began."""
    renderer = make_renderer("qwen3")
    stray = [*renderer.answer(Message("assistant", "Hi.", "Hm."))[:-1], *renderer.answer(run("ls"))[:-1]]
    stray.insert(3, renderer._tokenizer.convert_tokens_to_ids("<|im_start|>"))
    policy = Speaking([("thinking", "Hm."), ("text", "Hi.")], [*stray, renderer.stop_ids[0]])
    async with served(policy, renderer) as endpoint:
        session, key = await endpoint.session()
        talk = list(ASKED["messages"])
        for _ in range(2):
            async with asking(endpoint, key, messages=talk) as rows:
                said = "".join([text(row) async for row in rows])
            assert said == "Hi."
            talk += [{"role": "assistant", "content": said}, {"role": "user", "content": "Go on"}]
        summary = await session.end()
    assert (summary["malformed_turns"], summary["branches"]) == (2, 1)
    assert "<|im_start|>" in read_session(session.path).of("completion")[0].data["message"]["text"]


@pytest.mark.parametrize("stream", [True, False])
async def test_a_policy_is_asked_for_pieces_only_by_those_who_stream(served: Serve, stream: bool) -> None:
    asked: list[bool] = []

    class Noting(Speaking):
        async def complete(self, request: Request) -> Completion:
            asked.append(request.on_delta is not None)
            return await super().complete(request)

    async with served(Noting([("text", "a")], Message("assistant", "a"))) as endpoint:
        _, key = await endpoint.session()
        async with asking(endpoint, key, stream=stream) as rows:
            async for _ in rows:
                pass
    assert asked == [stream]


async def test_a_turn_comes_in_pieces_over_anthropic_s_wire_too(served: Serve) -> None:
    gate = asyncio.Event()
    said = Message("assistant", "Done.", "Let me see", run("ls").calls)
    policy = Speaking([("thinking", "Let me "), gate, ("thinking", "see"), ("text", "Do")], said)
    body = {"model": "m", "max_tokens": 9, "messages": ASKED["messages"], "stream": True}
    async with served(policy) as endpoint:
        _, key = await endpoint.session()
        assembly, pieces, reader = MessagesAssembly(), [], EventReader()
        async with endpoint.http.stream("POST", "/v1/messages", json=body, headers={"x-api-key": key}) as got:
            async for received in got.aiter_bytes():
                for event in reader.feed(received):
                    pieces.append(assembly.add(json.loads(event.data)))
                    gate.set()
    assert [piece for piece in pieces if any(piece)] == [("", "Let me "), ("", "see"), ("Do", ""), ("ne.", "")]
    assert [block["type"] for block in assembly.body()["content"]] == ["thinking", "text", "tool_use"]


async def test_calls_that_a_server_numbers_again_each_turn_have_ids_of_their_own(served: Serve) -> None:
    async with served(Speaking([], run("ls"))) as endpoint:
        _, key = await endpoint.session()
        client = openai.AsyncOpenAI(base_url=f"{endpoint.address}/v1", api_key=key)
        ids = set()
        for n in range(3):
            asked = ASKED | {"stream": False, "messages": [{"role": "user", "content": str(n)}]}
            ids.add((await client.chat.completions.create(**asked)).choices[0].message.tool_calls[0].id)
    assert len(ids) == 3
