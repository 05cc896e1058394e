"""Answers over HTTP are those of the engine, whole and streamed, read by OpenAI's own client."""

from __future__ import annotations

import asyncio
import base64
import json
from dataclasses import replace

import numpy as np
import pytest
from openai import AsyncOpenAI, BadRequestError
from serve_lab import NAME, ScriptedThread, served

from etude.agent.policy.protocol import Request
from etude.core.trace.message import Message, ToolCall
from etude.learn.engine.policy import EnginePolicy

HELLO = [{"role": "user", "content": "print the total of the items"}]
READ_FILE = {
    "type": "function",
    "function": {
        "name": "read_file",
        "parameters": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
    },
}


def sdk(running) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=f"{running.address}/v1", api_key="none", max_retries=0)


async def test_greedy_text_tokens_and_logprobs_are_the_engines_own(model, thread):
    prompt = tuple(model.renderer.render([Message("user", HELLO[0]["content"])], []))
    wanted = await EnginePolicy(thread).complete(
        Request("own", (), prompt_ids=prompt, stop_ids=tuple(sorted(model.ends)), max_tokens=24, temperature=0.0)
    )
    async with served(model, thread) as (running, _):
        found = await sdk(running).chat.completions.create(
            model=NAME, messages=HELLO, max_tokens=24, temperature=0, logprobs=True, top_logprobs=3,
            extra_body={"return_token_ids": True},
        )  # fmt: skip
    choice = found.choices[0]
    assert choice.token_ids == wanted.tokens.ids and found.prompt_token_ids == list(prompt)
    logprobs = [entry.logprob for entry in choice.logprobs.content]
    assert logprobs == pytest.approx(wanted.tokens.logprobs, abs=1e-5)
    assert all(entry.top_logprobs[0].logprob == entry.logprob for entry in choice.logprobs.content)
    assert choice.message.content.strip() == model.renderer.parse(wanted.tokens.ids).text.strip()
    assert (found.usage.prompt_tokens, found.usage.completion_tokens) == (len(prompt), len(wanted.tokens.ids))
    routes = choice.etude["routes"]
    own = np.frombuffer(base64.b64decode(routes["data"]), routes["dtype"]).reshape(routes["shape"])
    assert choice.etude["versions"] == wanted.tokens.versions
    assert (own[-4:] == wanted.tokens.routes[-4:]).all()


@pytest.mark.parametrize("n", [1, 3])
async def test_a_stream_makes_the_whole_answer(model, thread, n):
    asked = {
        "model": NAME, "messages": HELLO, "max_tokens": 30, "temperature": 1.2, "seed": 5, "n": n, "logprobs": True,
        "extra_body": {"return_token_ids": True},
    }  # fmt: skip
    async with served(model, thread) as (running, _):
        whole = await sdk(running).chat.completions.create(**asked)
        stream = await sdk(running).chat.completions.create(
            **asked, stream=True, stream_options={"include_usage": True}
        )
        texts, ids, logprobs, ends, usage = [""] * n, [[] for _ in range(n)], [[] for _ in range(n)], {}, None
        async for chunk in stream:
            usage = chunk.usage or usage
            for choice in chunk.choices:
                texts[choice.index] += choice.delta.content or ""
                ids[choice.index] += getattr(choice, "token_ids", None) or []
                logprobs[choice.index] += [
                    entry.logprob for entry in (choice.logprobs.content if choice.logprobs else [])
                ]
                if choice.finish_reason:
                    ends[choice.index] = choice.finish_reason
    assert texts == [choice.message.content or "" for choice in whole.choices]
    assert ids == [choice.token_ids for choice in whole.choices]
    for found, choice in zip(logprobs, whole.choices, strict=True):  # a copied beginning differs in the last bits
        assert found == pytest.approx([entry.logprob for entry in choice.logprobs.content], abs=1e-4)
    assert [ends[i] for i in range(n)] == [choice.finish_reason for choice in whole.choices]
    assert usage.completion_tokens == whole.usage.completion_tokens
    assert n == 1 or len({choice.message.content for choice in whole.choices}) == n


async def test_completions_take_text_and_ids_and_stream(model, thread):
    text = "def total(items):\n    return sum(items)"
    async with served(model, thread) as (running, _):
        api = sdk(running).completions
        asked = {
            "model": NAME,
            "max_tokens": 20,
            "temperature": 0,
            "logprobs": 2,
            "extra_body": {"return_token_ids": True},
        }
        by_text = await api.create(prompt=text, **asked)
        ids = by_text.choices[0].prompt_token_ids
        by_ids = await api.create(prompt=ids, **asked)
        pieces = [chunk async for chunk in await api.create(prompt=ids, stream=True, **asked)]
    assert ids == model.tokenizer.encode(text)
    first = by_text.choices[0]
    assert by_ids.choices[0].text == first.text and by_ids.usage.prompt_tokens_details.cached_tokens == len(ids) - 1
    assert "".join(chunk.choices[0].text for chunk in pieces) == first.text
    assert [
        token for chunk in pieces for token in getattr(chunk.choices[0], "token_ids", None) or []
    ] == first.token_ids
    assert first.logprobs.tokens == [model.token_text(id) for id in first.token_ids]
    assert all(len(top) <= 2 for top in first.logprobs.top_logprobs)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_stop_string_ends_the_answer_before_it(model, thread, stream):
    asked = {"model": NAME, "prompt": "def total", "max_tokens": 40, "temperature": 0}
    async with served(model, thread) as (running, _):
        api = sdk(running).completions
        whole = (await api.create(**asked)).choices[0].text
        stop = whole[10:13]
        if stream:
            chunks = [chunk async for chunk in await api.create(**asked, stop=[stop, "\x00no"], stream=True)]
            text, end = "".join(c.choices[0].text for c in chunks), chunks[-1].choices[0].finish_reason
        else:
            choice = (await api.create(**asked, stop=[stop, "\x00no"])).choices[0]
            text, end = choice.text, choice.finish_reason
        assert (text, end) == (whole[: whole.index(stop)], "stop")
        assert running.state.client.in_flight == 0


async def test_thirty_two_sessions_get_their_own_answers(model, thread):
    asked = [{"model": NAME, "prompt": f"case {i}", "max_tokens": 12, "temperature": 0} for i in range(32)]
    async with served(model, thread) as (running, http):
        alone = [(await http.post("/v1/completions", json=body)).json()["choices"][0]["text"] for body in asked[:3]]
        answers = await asyncio.gather(*(http.post("/v1/completions", json=body) for body in asked))
        assert [answer.status_code for answer in answers] == [200] * 32
        assert [answer.json()["choices"][0]["text"] for answer in answers[:3]] == alone
        text = (await http.get("/metrics")).text
    assert 'etude_requests_total{endpoint="/v1/completions",status="200"} 35' in text
    assert "etude_engine_sampled_tokens" in text and "etude_answers_in_progress 0" in text


async def test_a_later_turn_computes_only_its_new_tokens(model, thread):
    async with served(model, thread) as (running, _):
        api = sdk(running).chat.completions
        first = await api.create(model=NAME, messages=HELLO, max_tokens=8, temperature=0)
        turn = {"role": "assistant", "content": first.choices[0].message.content or ""}
        later = await api.create(model=NAME, messages=[*HELLO, turn, *HELLO], max_tokens=8, temperature=0)
    assert later.usage.prompt_tokens_details.cached_tokens >= first.usage.prompt_tokens - 2


@pytest.mark.parametrize("stream", [False, True])
async def test_calls_of_a_chatml_model_are_tool_calls_with_json_arguments(model, stream):
    turn = Message("assistant", "Look:", calls=(ToolCall("x", "read_file", {"path": 'a "b".py'}),))
    scripted = ScriptedThread(lambda request: model.renderer.answer(turn))
    async with served(replace(model, window=1000), scripted) as (running, _):
        api = sdk(running).chat.completions
        asked = {"model": NAME, "messages": HELLO, "tools": [READ_FILE], "tool_choice": "auto"}
        if stream:
            deltas = [c.choices[0] async for c in await api.create(**asked, stream=True)]
            calls = [call for choice in deltas for call in choice.delta.tool_calls or []]
            text, end = "".join(c.delta.content or "" for c in deltas), deltas[-1].finish_reason
        else:
            choice = (await api.create(**asked)).choices[0]
            calls, text, end = choice.message.tool_calls, choice.message.content, choice.finish_reason
        await api.create(**asked | {"tool_choice": "none"})
    assert [call.function.name for call in calls] == ["read_file"] and text == "Look:" and end == "tool_calls"
    assert json.loads(calls[0].function.arguments) == {"path": 'a "b".py'}
    offered, hidden = (len(request.prompt_ids) for request in scripted.requests)
    assert offered > hidden


async def test_a_prompt_beyond_the_window_is_named_so(model, thread):
    async with served(model, thread) as (running, _):
        with pytest.raises(BadRequestError) as raised:
            await sdk(running).completions.create(model=NAME, prompt=[5] * 192, max_tokens=1)
    assert raised.value.code == "context_length_exceeded" and raised.value.param == "prompt"
