"""What the server refuses, and that nothing a client sends or does breaks it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from serve_lab import NAME, ScriptedThread, served

from etude.agent.proxy.serving import UnprotectedEndpoint
from etude.learn.serve.answer_reader import StopScanner
from etude.learn.serve.app import ServeState, make_app
from etude.learn.serve.engine_client import EngineClient, PromptSessions
from etude.learn.serve.request import CHAT_FIELDS, NEUTRAL, RefusedRequest, read_chat, read_text

ASKED = {"model": NAME, "prompt": "case", "max_tokens": 2}
CHAT = {"model": NAME, "messages": [{"role": "user", "content": "hi"}]}


@pytest.mark.parametrize(
    ("change", "param", "code"),
    [
        ({"best_of": 3}, "best_of", "unsupported_parameter"),
        ({"echo": True}, "echo", "unsupported_parameter"),
        ({"frequency_penalty": 0.5}, "frequency_penalty", "unsupported_parameter"),
        ({"no_such": 1}, "no_such", "unknown_parameter"),
        ({"temperature": -1}, "temperature", None),
        ({"temperature": 1e-20}, "temperature", None),
        ({"top_p": 1e-40}, "top_p", None),
        ({"stop": [""]}, "stop", None),
        ({"prompt": []}, "prompt", None),
        ({"prompt": [10**9]}, "prompt", None),
        ({"max_tokens": 0}, "max_tokens", None),
        ({"stream_options": {"other": 1}}, "stream_options", None),
    ],
)
async def test_a_field_that_cannot_be_honoured_is_named(model, thread, change, param, code):
    async with served(model, thread) as (_, http):
        found = await http.post("/v1/completions", json=ASKED | change)
        error = found.json()["error"]
        assert (found.status_code, error["param"], error["code"]) == (400, param, code), error
        assert error["type"] == "invalid_request_error"
        assert (await http.post("/v1/completions", json=ASKED | {"user": "me", "echo": False})).status_code == 200


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"tool_choice": "required", "tools": [{"type": "function", "function": {"name": "f"}}]}, "tool_choice"),
        ({"tools": [{"type": "retrieval"}]}, "tools"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"messages": [{"role": "assistant", "content": "hi"}]}, "messages"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"reasoning_effort": "max"}, "reasoning_effort"),
    ],
)
def test_a_chat_field_that_cannot_be_honoured_is_named(change, param):
    with pytest.raises(RefusedRequest) as raised:
        read_chat(CHAT | change)
    assert raised.value.param == param


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)
NAMES = st.sampled_from(sorted(CHAT_FIELDS | {"prompt"} | NEUTRAL.keys())) | st.text(max_size=8)


@given(st.dictionaries(NAMES, JSON_VALUES, max_size=5), st.booleans())
@settings(max_examples=200)
def test_any_object_is_a_question_or_a_refusal(fields, keep):
    for read, base in ((read_chat, CHAT), (read_text, ASKED)):
        try:
            read({**base, **fields} if keep else fields)
        except RefusedRequest as refused:
            assert json.dumps(refused.body())


@given(
    body=st.binary(max_size=60)
    | JSON_VALUES.map(lambda v: json.dumps({**CHAT, "max_tokens": 1, "messages": v}).encode())
)
@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_no_body_is_a_server_error(model, thread, body):
    client = EngineClient(thread, sessions=8, waiting=8)
    transport = httpx.ASGITransport(make_app(ServeState(model, client, None), None))  # type: ignore[arg-type]
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
        for path in ("/v1/chat/completions", "/v1/completions"):
            found = await http.post(path, content=body, headers={"content-type": "application/json"})
            assert found.status_code < 500 and (found.status_code == 200 or found.json()["error"]["message"])


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_leaves_frees_its_session(model, stream):
    scripted = ScriptedThread(lambda request: None)
    async with served(model, scripted) as (running, http):
        with pytest.raises(httpx.ReadTimeout):
            async with http.stream("POST", "/v1/completions", json=ASKED | {"stream": stream}, timeout=0.3) as answer:
                async for _ in answer.aiter_bytes():
                    pass
        for _ in range(100):
            if scripted.aborted:
                break
            await asyncio.sleep(0.05)
        assert scripted.aborted == [1] and running.state.client.in_flight == 0
        assert running.state.metrics.requests["/v1/completions", 499] == 1


async def test_a_full_queue_is_429_with_a_time_to_wait(model):
    scripted = ScriptedThread(lambda request: None)
    async with served(model, scripted, sessions=1, waiting=1) as (running, http):
        held = [asyncio.create_task(http.post("/v1/completions", json=ASKED)) for _ in range(2)]
        while running.state.client.in_flight < 2:
            await asyncio.sleep(0.01)
        refused = await http.post("/v1/completions", json=ASKED)
        assert refused.status_code == 429 and int(refused.headers["retry-after"]) > 0
        scripted.abort(1), scripted.abort(2)
        assert [answer.status_code for answer in await asyncio.gather(*held)] == [500, 500]


async def test_a_key_guards_everything_but_health_and_other_hosts_need_one(model, thread):
    async with served(model, thread, api_key="secret") as (running, http):
        assert (await http.get("/health")).status_code == 200
        for path in ("/v1/models", "/metrics"):
            assert (await http.get(path)).status_code == 401
            assert (await http.get(path, headers={"authorization": "Bearer secret"})).status_code == 200
        assert (await http.post("/v1/completions", json=ASKED)).status_code == 401
        named = await http.get("/v1/models", headers={"authorization": "Bearer secret"})
        assert named.json()["data"][0] | {"created": 0} == {
            "id": NAME, "object": "model", "created": 0, "owned_by": "etude", "max_model_len": model.window,
                "return_token_ids": True, "chat_fingerprint": model.renderer.fingerprint,
                "chat_format": model.renderer.name,
        }  # fmt: skip
    with pytest.raises(UnprotectedEndpoint, match="--api-key-env"):
        async with served(model, thread, host="0.0.0.0"):
            pass


async def test_an_unknown_model_and_an_unknown_route_are_not_found(model, thread):
    async with served(model, thread) as (_, http):
        found = await http.post("/v1/completions", json=ASKED | {"model": "other"})
        assert found.status_code == 404 and found.json()["error"]["code"] == "model_not_found"
        assert (await http.get("/v2/none")).json()["error"]["message"].startswith("GET /v2/none is not served")
        assert (await http.get("/v1/completions")).status_code == 405


@given(st.text("ab", max_size=30), st.lists(st.text("ab", min_size=1, max_size=4), max_size=3), st.data())
def test_a_scanner_passes_exactly_what_precedes_the_first_stop_string(text, stops, data):
    scanner, out, at = StopScanner(stops), "", 0
    while at < len(text):
        step = data.draw(st.integers(1, 5))
        out, at = out + scanner.add(text[at : at + step]), at + step
    out += "" if scanner.found else scanner.rest()
    ends = sorted((text.find(stop) + len(stop), text.find(stop)) for stop in stops if stop in text)
    assert scanner.found == bool(ends)
    assert text.startswith(out) and (out == text if not ends else not any(stop in out for stop in stops))


def test_a_prompt_continues_the_longest_prompt_that_it_extends():
    sessions = PromptSessions(2)
    a, b = sessions.take((1, 2)), sessions.take((1, 2, 3))
    assert a != b and sessions.park(a, (1, 2)) == sessions.park(b, (1, 2, 3)) == []
    assert sessions.take((1, 2, 3, 4)) == b and sessions.take((1, 2)) not in (a, b)
    assert sessions.park("c", (9,)) == [] and sessions.park("d", (8,)) == [a]


@pytest.mark.sample(1)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_command_with_status_0(number):
    nano = next((Path(__file__).parents[3] / "checkpoints").glob("*/config.json")).parent
    command = [sys.executable, "-P", "-m", "etude", "serve", str(nano), "--port", "0", "--sessions", "2", "--json"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ})
    assert server.stderr is not None
    address = server.stderr.readline().split("answers at ")[1].split()[0]
    models = httpx.get(f"{address}/models").json()
    asked = {"model": models["data"][0]["id"], "messages": CHAT["messages"], "max_tokens": 8}
    assert httpx.post(f"{address}/chat/completions", json=asked, timeout=60).json()["usage"]["completion_tokens"] > 0
    server.send_signal(number)
    out, errors = server.communicate(timeout=60)
    assert server.returncode == 0, errors
    assert json.loads(out)["requests"] == 1 and signal.Signals(number).name in errors
