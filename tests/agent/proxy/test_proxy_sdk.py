"""Agents of others: the real openai SDK and the raw Anthropic wire, over a socket, whole and streamed."""

from __future__ import annotations

import json
from typing import Any, Callable

import openai
import pytest
from captured import BASH, Endpoint, Serve, TokenPolicy, run  # pyright: ignore[reportMissingImports]

from etude.agent.policy.protocol import PolicyError, Request
from etude.agent.policy.scripted import EchoPolicy, ScriptedPolicy
from etude.agent.policy.wire.anthropic_stream import MessagesAssembly
from etude.agent.policy.wire.sse import EventReader
from etude.core.trace.message import Message
from etude.core.trace.reader import read_session

ANTHROPIC_TOOL = {"name": "bash", "description": "Run a command", "input_schema": BASH["function"]["parameters"]}


def sdk(endpoint: Endpoint, key: str, **options: Any) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{endpoint.address}/v1", api_key=key, **options)


def steps(request: Request) -> Message:
    """Looks, then is done."""
    looked = any(message.role == "tool" for message in request.messages)
    return Message("assistant", "Done.") if looked else run("ls", "I look first.")


@pytest.mark.parametrize("stream", [False, True])
async def test_an_agent_on_the_openai_sdk_is_one_sample(
    served: Serve, make_renderer: Callable[..., Any], stream: bool
) -> None:
    renderer = make_renderer("qwen3")
    policy = TokenPolicy(renderer, steps)
    async with served(policy, renderer) as endpoint:
        session, key = await endpoint.session(task_id="fix-1")
        client = sdk(endpoint, key)
        talk: Any = [{"role": "system", "content": "You fix."}, {"role": "user", "content": "Fix a.py"}]
        first = await _turn(client, talk, stream)
        assert first["tool_calls"][0]["function"] == {"name": "bash", "arguments": '{"command": "ls"}'}
        talk += [first, {"role": "tool", "tool_call_id": first["tool_calls"][0]["id"], "content": "a.py"}]
        assert (await _turn(client, talk, stream))["content"] == "Done."
        summary = (await endpoint.http.post(f"/sessions/{session.id}/end", headers=bearer(key))).json()
    assert (summary["samples"], summary["turns"], summary["forks"]) == (1, 2, 0)
    kept = read_session(session.path)
    assert kept.header.task_id == "fix-1" and kept.header.harness_facts["tools"] == [BASH]
    assert kept.header.recipe["capture"]["agent"].startswith("AsyncOpenAI")
    assert [entry.type for entry in kept.entries][:5] == [
        "message",
        "message",
        "completion",
        "tool_result",
        "completion",
    ]
    assert kept.of("completion")[0].data["message"]["thinking"] == "I look first."


async def _turn(client: openai.AsyncOpenAI, talk: Any, stream: bool) -> dict[str, Any]:
    asked: Any = {"model": "any", "messages": talk, "tools": [BASH]}
    if not stream:
        answer = await client.chat.completions.create(**asked)
        assert answer.usage is not None and answer.usage.completion_tokens > 0 < answer.usage.prompt_tokens
        return answer.choices[0].message.model_dump(exclude_none=True)
    async with client.chat.completions.stream(**asked, stream_options={"include_usage": True}) as events:
        async for _ in events:
            pass
        final = await events.get_final_completion()
    assert final.usage is not None and final.usage.total_tokens > 0
    said = final.choices[0].message.model_dump(exclude_none=True)
    calls = [
        {**call, "function": {k: call["function"][k] for k in ("name", "arguments")}}
        for call in said.get("tool_calls", [])
    ]
    return {"role": "assistant", "content": said.get("content"), **({"tool_calls": calls} if calls else {})}


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


async def test_an_agent_on_the_responses_format_is_one_sample(served: Serve, make_renderer: Callable[..., Any]) -> None:
    renderer = make_renderer("qwen3")
    async with served(TokenPolicy(renderer, steps), renderer) as endpoint:
        session, key = await endpoint.session()
        tool: Any = {"type": "function", "strict": False, **BASH["function"]}
        given: Any = [{"role": "user", "content": "Fix a.py"}]
        client = sdk(endpoint, key)
        first = await client.responses.create(model="m", input=given, tools=[tool], instructions="You fix.")
        call = next(item for item in first.output if item.type == "function_call")
        given += [item.model_dump(exclude_none=True) for item in first.output]
        given.append({"type": "function_call_output", "call_id": call.call_id, "output": "a.py"})
        async with client.responses.stream(model="m", input=given, tools=[tool], instructions="You fix.") as events:
            async for _ in events:
                pass
            assert (await events.get_final_response()).output_text == "Done."
        summary = await session.end()
    assert (summary["samples"], summary["forks"], summary["branches"]) == (1, 0, 1)


async def test_an_agent_on_the_raw_anthropic_wire_is_one_sample(
    served: Serve, make_renderer: Callable[..., Any]
) -> None:
    renderer = make_renderer("kimi-k2.5")
    async with served(TokenPolicy(renderer, steps), renderer) as endpoint:
        session, key = await endpoint.session()
        talk: list[Any] = [{"role": "user", "content": [{"type": "text", "text": "Fix a.py"}]}]
        body = {"model": "m", "max_tokens": 500, "system": "You fix.", "tools": [ANTHROPIC_TOOL], "messages": talk}
        headers = {"x-api-key": key, "anthropic-version": "2023-06-01"}
        first = (await endpoint.http.post("/v1/messages", json=body, headers=headers)).json()
        assert first["type"] == "message" and first["stop_reason"] == "tool_use"
        assert first["usage"]["output_tokens"] > 0
        call = first["content"][-1]
        assert call["input"] == {"command": "ls"}
        answer = {"type": "tool_result", "tool_use_id": call["id"], "content": "no such file", "is_error": True}
        talk += [{"role": "assistant", "content": first["content"]}, {"role": "user", "content": [answer]}]
        reader, assembly, names = EventReader(), MessagesAssembly(), []
        async with endpoint.http.stream("POST", "/v1/messages", json={**body, "stream": True}, headers=headers) as got:
            async for piece in got.aiter_bytes():
                for event in reader.feed(piece):
                    names.append(event.name)
                    assembly.add(json.loads(event.data))
        assert names[0] == "message_start" and names[-1] == "message_stop"
        assert assembly.body()["content"][-1]["text"] == "Done."
        summary = await session.end()
    assert (summary["samples"], summary["forks"]) == (1, 0)
    (tool_result,) = read_session(session.path).of("tool_result")
    assert tool_result.data["failed"] is True and tool_result.data["name"] == "bash"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("n", 2),
        ("logit_bias", {"50256": -100}),
        ("response_format", {"type": "json_schema", "json_schema": {"name": "x", "schema": {}}}),
        ("stop", ["\n"]),
        ("top_p", 0.5),
        ("tool_choice", "required"),
        ("reasoning_effort", "utmost"),
        ("a_field_of_next_year", 1),
    ],
)
async def test_a_field_that_can_not_be_honoured_is_refused_by_name(served: Serve, field: str, value: Any) -> None:
    async with served(EchoPolicy()) as endpoint:
        session, key = await endpoint.session()
        client = sdk(endpoint, key)
        asked: Any = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "tools": [BASH]}
        with pytest.raises(openai.BadRequestError, match=field):
            await client.chat.completions.create(**asked, extra_body={field: value})
        assert session.counters()["turns"] == 0


@pytest.mark.parametrize(
    ("field", "value"),
    [("stop_sequences", ["x"]), ("top_k", 5), ("tool_choice", {"type": "any"}), ("mcp_servers", [{"url": "x"}])],
)
async def test_anthropic_fields_that_can_not_be_honoured_are_refused_by_name(
    served: Serve, field: str, value: Any
) -> None:
    async with served(EchoPolicy()) as endpoint:
        _, key = await endpoint.session()
        body = {
            "model": "m",
            "max_tokens": 5,
            "messages": [{"role": "user", "content": "Hi"}],
            "tools": [ANTHROPIC_TOOL],
        }
        got = await endpoint.http.post("/v1/messages", json={**body, field: value}, headers={"x-api-key": key})
        assert got.status_code == 400
        assert got.json()["type"] == "error" and field in got.json()["error"]["message"]


async def test_harmless_and_allowed_fields_are_let_through_and_noted(served: Serve) -> None:
    async with served(EchoPolicy(), allowed=frozenset({"top_p"})) as endpoint:
        session, key = await endpoint.session()
        asked: Any = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
        extra = {"top_p": 0.9, "user": "someone", "n": 1}
        answer = await sdk(endpoint, key).chat.completions.create(**asked, extra_body=extra)
        assert answer.choices[0].message.content == "Hi"
        await session.end()
    assert set(read_session(session.path).header.recipe["capture"]["ignored"]) == {"top_p", "user"}


async def test_tool_choice_none_hides_the_tools_from_the_model(
    served: Serve, make_renderer: Callable[..., Any]
) -> None:
    renderer = make_renderer("qwen3")
    policy = TokenPolicy(renderer, lambda request: Message("assistant", "No tools."))
    async with served(policy, renderer) as endpoint:
        _, key = await endpoint.session()
        asked: Any = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "tools": [BASH]}
        await sdk(endpoint, key).chat.completions.create(**asked, tool_choice="none")
    assert policy.requests[0].tools == ()


async def test_keys_and_hosts_are_checked(served: Serve) -> None:
    async with served(EchoPolicy()) as endpoint:
        session, key = await endpoint.session()
        other, other_key = await endpoint.session()
        body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
        with pytest.raises(openai.AuthenticationError, match="POST /sessions"):
            await sdk(endpoint, "wrong").chat.completions.create(**body)  # pyright: ignore
        post = endpoint.http.post
        assert (await post(f"/sessions/{session.id}/end", headers=bearer(other_key))).status_code == 403
        assert (await post("/sessions/none/end", headers=bearer(key))).status_code == 404
        assert (await post("/sessions", content="{}", headers={"content-type": "text/plain"})).status_code == 415
        assert (await post("/sessions", json={"name": "x"})).status_code == 400
        assert (await post("/sessions", json={"task_id": "../x"})).status_code == 400
        named = await post("/v1/chat/completions", json=body, headers={**bearer(key), "host": "evil.example"})
        assert named.status_code == 403
        assert (
            await post(
                "/v1/chat/completions", content=b"{", headers={**bearer(key), "content-type": "application/json"}
            )
        ).status_code == 400
        await post(f"/sessions/{session.id}/end", headers=bearer(key))
        with pytest.raises(openai.ConflictError, match="has ended"):
            await sdk(endpoint, key, max_retries=0).chat.completions.create(**body)  # pyright: ignore
        assert other.summary is None
    assert other.summary is not None and other.summary["reason"] == "stopped", "the endpoint's end ends its sessions"


async def test_policy_faults_are_the_request_s_and_infra_faults_are_tried_again(served: Serve) -> None:
    faults = [PolicyError("engine restarting"), PolicyError("context_length_exceeded: 9", infra=False)]

    def script(request: Request) -> Message:
        if faults:
            raise faults.pop(0)
        return Message("assistant", "Hello")

    async with served(ScriptedPolicy(script)) as endpoint:
        session, key = await endpoint.session()
        asked: Any = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
        client = sdk(endpoint, key, max_retries=1)
        with pytest.raises(openai.BadRequestError, match="context_length_exceeded"):
            await client.chat.completions.create(**asked)  # 503, tried again by the SDK, then 400
        assert (await client.chat.completions.create(**asked)).choices[0].message.content == "Hello"
        await session.end()
    kept = read_session(session.path)
    assert [entry.data["infra"] for entry in kept.of("fault")] == [True, False]
    assert len(kept.of("completion")) == 1


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
@pytest.mark.parametrize("stream", [False, True])
async def test_what_the_upstream_refuses_keeps_its_status_and_words(served: Serve, status: int, stream: bool) -> None:
    """A 503 would have the agent try a wrong key for minutes."""

    def script(request: Request) -> Message:
        raise PolicyError(f"HTTP {status}: no (remedy for the operator)", status=status, refusal="no such thing")

    async with served(ScriptedPolicy(script)) as endpoint:
        _, key = await endpoint.session()
        paths = {"/v1/chat/completions": {}, "/v1/messages": {"max_tokens": 5}}
        for path, more in paths.items():
            body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "stream": stream, **more}
            answer = await endpoint.http.post(path, json=body, headers=bearer(key))
            assert (answer.status_code, answer.json()["error"]["message"]) == (status, "no such thing")


async def test_the_models_list_names_who_answers(served: Serve) -> None:
    async with served(EchoPolicy()) as endpoint:
        _, key = await endpoint.session()
        assert [model.id async for model in sdk(endpoint, key).models.list()] == ["echo"]
