"""The endpoint policy against a real HTTP server: what goes over the wire, what is retried, whose fault it is."""

from __future__ import annotations

import asyncio
import email.utils
import json
import re
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.agent.policy import openai
from etude.agent.policy.openai import OpenAIPolicy
from etude.agent.policy.protocol import ContextOverflow, PolicyError, Request, RetryWait
from etude.agent.policy.wire.chat import from_wire
from etude.agent.policy.wire.opaque import provider_of
from etude.core.trace.message import FAILED, FILTERED, Message, ToolCall
from etude.sandbox.egress.address import AddressError


@dataclass
class Endpoint:
    """Plays (status, body) answers in order, the last one for ever, and keeps the requests."""

    url: str = ""
    answers: list[Any] = field(default_factory=list)  # or functions of the request
    seen: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[Endpoint]:
    monkeypatch.setattr(openai, "FIRST_WAIT_S", 0.001)
    here = Endpoint()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            here.seen.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            here.headers.append(dict(self.headers))
            answer = here.answers.pop(0) if len(here.answers) > 1 else here.answers[0]
            status, body, *more = answer(here.seen[-1]) if callable(answer) else answer
            data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            for name, value in (more[0] if more else {}).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *args: Any) -> None:
            """Silent."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    here.url = f"http://127.0.0.1:{server.server_port}/v1/"
    yield here
    server.shutdown()
    server.server_close()


def said(finish: str = "stop", **message: Any) -> tuple[int, dict[str, Any]]:
    usage = {"prompt_tokens": 9, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 5}}
    return 200, {"choices": [{"message": message, "finish_reason": finish}], "usage": usage}


def wire_call(arguments: Any, name: str = "view", id: str | None = "k1") -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def ask(endpoint: Endpoint, request: Request | None = None, **options: Any):
    async def go():
        policy = OpenAIPolicy("m", base_url=endpoint.url, **options)
        try:
            return await policy.complete(request or Request("s", (Message("user", "hi"),)))
        finally:
            await policy.close()

    return asyncio.run(go())


def test_a_conversation_goes_over_the_wire_whole(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_KEY", "sesame")
    endpoint.answers = [said(content="ok")]
    tool = {"type": "function", "function": {"name": "view"}}
    call = ToolCall("k1", "view", {"path": "a"})
    messages = (
        Message("system", "be good"),
        Message("user", "fix"),
        Message("assistant", "look", thinking="hm", calls=(call,)),
        Message("tool", "text", call_id="k1"),
        Message("tool", "malformed: x"),
    )
    ask(endpoint, Request("s", messages, (tool,), max_tokens=7, temperature=0.5, seed=3), api_key_env="SOME_KEY")
    [body] = endpoint.seen
    assert body["messages"] == [
        {"role": "system", "content": "be good"},
        {"role": "user", "content": "fix"},
        {"role": "assistant", "content": "look", "tool_calls": [wire_call('{"path": "a"}')]},
        {"role": "tool", "tool_call_id": "k1", "content": "text"},
        {"role": "user", "content": "malformed: x"},
    ]
    assert (body["model"], body["tools"], body["max_tokens"], body["temperature"], body["seed"]) == (
        "m",
        [tool],
        7,
        0.5,
        3,
    )
    assert endpoint.headers[0]["Authorization"] == "Bearer sesame"
    assert "tool_choice" not in body


def test_fields_an_endpoint_refuses_can_be_renamed_or_left_out(endpoint: Endpoint) -> None:
    endpoint.answers = [said(content="ok")]
    ask(endpoint, omit=("temperature",), max_tokens_field="max_completion_tokens")
    assert "temperature" not in endpoint.seen[0] and endpoint.seen[0]["max_completion_tokens"] == 256


def test_a_summary_turn_keeps_the_tools_declared_but_forbids_them(endpoint: Endpoint) -> None:
    endpoint.answers = [said(content="so far")]
    ask(endpoint, Request("s", (Message("user", "x"),), ({"type": "function"},), extra={"summary": True}))
    assert endpoint.seen[0]["tool_choice"] == "none" and endpoint.seen[0]["tools"]


def test_arguments_that_the_server_has_parsed_are_taken(endpoint: Endpoint) -> None:
    endpoint.answers = [said(content="", tool_calls=[wire_call({"path": "a"})])]
    assert ask(endpoint).message.calls == (ToolCall("k1", "view", {"path": "a"}),)


def test_calls_thinking_and_usage_are_read(endpoint: Endpoint) -> None:
    calls = [wire_call('{"path": "a"}'), wire_call("", "test", None)]
    endpoint.answers = [said("tool_calls", content=None, reasoning_content="hm", tool_calls=calls)]
    answer = ask(endpoint)
    expected = (ToolCall("k1", "view", {"path": "a"}), ToolCall("call-1", "test", {}))
    assert answer.message == Message("assistant", "", "hm", expected)
    assert (answer.usage.input_tokens, answer.usage.cached_tokens, answer.usage.output_tokens) == (9, 5, 4)
    assert answer.usage.seconds > 0 and answer.finish == "stop"


@pytest.mark.parametrize(("finish", "problem"), [("content_filter", FILTERED), ("SAFETY", FILTERED), ("error", FAILED)])
def test_a_turn_that_the_provider_ended_is_no_answer_and_runs_no_call(
    endpoint: Endpoint, finish: str, problem: str
) -> None:
    endpoint.answers = [said(finish, content="I can", tool_calls=[wire_call('{"path": "a"}')])]
    message = ask(endpoint).message
    assert (message.problem, message.calls) == (problem, ()) and message.text.startswith("I can")


@pytest.mark.parametrize("depth", [300, 480, 900])
def test_nesting_without_end_in_an_answer_ends_no_session_with_a_traceback(endpoint: Endpoint, depth: int) -> None:
    nested = "[" * depth + "]" * depth
    endpoint.answers = [said(content="x", tool_calls=[wire_call('{"path": ' + nested + "}")])]
    assert ask(endpoint).message.text.startswith("x")
    endpoint.answers = [said(content="x", reasoning_details=json.loads(nested))]
    try:
        assert ask(endpoint).message.text == "x"
    except PolicyError as error:
        assert error.infra


@pytest.mark.parametrize("arguments", ["{", "[1]", '"x"', pytest.param("[" * 100_000, id="endless")])
def test_malformed_arguments_are_evidence_not_an_error(endpoint: Endpoint, arguments: str) -> None:
    endpoint.answers = [said(content="", tool_calls=[wire_call(arguments)])]
    message = ask(endpoint).message
    assert message.problem == "the arguments of view are no JSON object" and message.calls == ()
    assert "view" in message.text


# Halves of one kind only: two of different kinds side by side are a whole character.
@given(st.text("aé😀\ud800") | st.text("aé😀\udfff"))
def test_half_a_surrogate_pair_becomes_one_replacement_character_wherever_it_stands(text: str) -> None:
    calls = [wire_call(json.dumps({text: [text]}), text, text)]
    _, body = said(content=text, reasoning_content=text, tool_calls=calls)
    message = from_wire(json.loads(json.dumps(body)), (), 0.0).message
    whole = re.sub("[\ud800\udfff]", "\ufffd", text)
    assert message == Message("assistant", whole, whole, (ToolCall(whole or "call-0", whole, {whole: [whole]}),))


def test_a_cut_off_text_says_so(endpoint: Endpoint) -> None:
    endpoint.answers = [said("length", content=[{"type": "text", "text": "I wa"}])]
    answer = ask(endpoint)
    assert answer.finish == "length" and answer.message.text == "I wa" and "cut off" in answer.message.problem


@pytest.mark.parametrize("status", [408, 429, 500, 503, 529])
def test_overload_is_retried_until_it_passes(endpoint: Endpoint, status: int) -> None:
    endpoint.answers = [(status, "busy"), (status, "busy"), said(content="ok")]
    assert ask(endpoint).message.text == "ok"
    assert len(endpoint.seen) == 3


def test_lasting_overload_is_an_infra_fault(endpoint: Endpoint) -> None:
    endpoint.answers = [(503, "busy")]
    with pytest.raises(PolicyError, match=r"failed 3 times, last with HTTP 503: busy") as caught:
        ask(endpoint, max_retries=2)
    assert caught.value.infra and len(endpoint.seen) == 3


def test_an_absent_server_and_a_hanging_one_are_infra_faults(endpoint: Endpoint) -> None:
    gone = Endpoint("http://127.0.0.1:9/v1")
    with pytest.raises(PolicyError, match="failed 2 times") as caught:
        ask(gone, max_retries=1)
    assert caught.value.infra

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """It holds the writer: one that nothing holds closes its connection (Python 3.13)."""
        await asyncio.sleep(5)
        writer.close()

    async def hang() -> None:
        server = await asyncio.start_server(silent, "127.0.0.1", 0)
        policy = OpenAIPolicy(
            "m", base_url=f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", timeout_s=0.05, max_retries=0
        )
        with pytest.raises(PolicyError, match="Timeout"):
            await policy.complete(Request("s", (Message("user", "hi"),)))
        await policy.close()
        server.close()

    asyncio.run(hang())


@pytest.mark.parametrize(
    ("status", "body", "infra"),
    [
        (400, '{"error": {"code": "context_length_exceeded"}}', False),
        (413, "too large", False),
        (400, "content_filter", False),
        (400, "unsupported field: seed", True),
        (401, "no key", True),
        (404, "no such model", True),
    ],
)
def test_only_the_conversations_own_trouble_counts_against_the_policy(
    endpoint: Endpoint, status: int, body: str, infra: bool
) -> None:
    endpoint.answers = [(status, body)]
    with pytest.raises(PolicyError) as caught:
        ask(endpoint)
    assert caught.value.infra is infra and len(endpoint.seen) == 1


@pytest.mark.parametrize(
    "body",
    [
        "<html>",
        {"object": "list"},
        {"choices": [{"message": None}]},
        said(content="ok", tool_calls=["view"])[1],
        said(content="ok", tool_calls=[{"id": "k1", "function": "view"}])[1],
    ],
)
def test_an_answer_that_is_no_completion_is_an_infra_fault(endpoint: Endpoint, body: Any) -> None:
    endpoint.answers = [(200, body)]
    with pytest.raises(PolicyError, match="answered no") as caught:
        ask(endpoint)
    assert caught.value.infra


def test_one_policy_serves_several_event_loops(endpoint: Endpoint) -> None:
    endpoint.answers = [said(content="ok")]
    policy = OpenAIPolicy("m", base_url=endpoint.url)
    for _ in range(2):
        assert asyncio.run(policy.complete(Request("s", (Message("user", "hi"),)))).message is not None


@pytest.mark.parametrize("status", [400, 500])
def test_a_tool_call_that_the_server_could_not_parse_is_a_malformed_turn(endpoint: Endpoint, status: int) -> None:
    endpoint.answers = [(status, '{"error": {"code": "tool_use_failed", "failed_generation": "<view path=>"}}')]
    message = ask(endpoint).message
    assert message.problem == "the server could not parse the tool call" and "<view path=>" in message.text
    assert len(endpoint.seen) == 1


def test_an_empty_turn_goes_back_as_words_since_some_endpoints_refuse_it(endpoint: Endpoint) -> None:
    endpoint.answers = [said(content="ok")]
    ask(endpoint, Request("s", (Message("assistant", "", problem="the turn was cut off"),)))
    assert endpoint.seen[0]["messages"][0]["content"] == "(nothing)"


@pytest.mark.parametrize(("header", "least", "most"), [("7", 7, 7), ("-3", 0, 0), ("soon", 0, 0), (None, 0, 0)])
def test_retry_after_is_read_in_seconds(header: str | None, least: float, most: float) -> None:
    assert least <= openai._retry_after_s(header) <= most


def test_retry_after_is_read_as_a_date() -> None:
    assert 25 < openai._retry_after_s(email.utils.formatdate(time.time() + 30, usegmt=True)) <= 30
    assert openai._retry_after_s("Sun, 06 Nov 1994 08:49:37 GMT") == 0


def test_an_empty_body_is_tried_again(endpoint: Endpoint) -> None:
    endpoint.answers = [(200, " \n"), said(content="ok")]
    assert ask(endpoint).message.text == "ok" and len(endpoint.seen) == 2


def test_a_models_refusal_is_its_answer(endpoint: Endpoint) -> None:
    endpoint.answers = [said(content=None, refusal="I can't help with that.")]
    assert ask(endpoint).message == Message("assistant", "I can't help with that.")


def refused(message: str, status: int = 400) -> tuple[int, dict[str, Any]]:
    return status, {"error": {"message": message}}


@pytest.mark.parametrize(
    "passing", [{"error": {"message": "upstream", "code": 502}}, {"error": "busy"}, {"choices": []}, {"error": {"code": 429}}]
)  # fmt: skip
def test_an_error_in_the_body_of_a_200_is_tried_again_as_its_status_would_be(endpoint: Endpoint, passing: Any) -> None:
    endpoint.answers = [(200, passing), said(content="ok")]
    assert ask(endpoint).message.text == "ok" and len(endpoint.seen) == 2


def test_an_error_in_the_body_of_a_200_that_will_not_pass_is_a_refusal(endpoint: Endpoint) -> None:
    endpoint.answers = [(200, {"error": {"message": "no such model", "code": 404}})]
    with pytest.raises(PolicyError, match="HTTP 404: no such model") as caught:
        ask(endpoint)
    assert caught.value.status == 404 and len(endpoint.seen) == 1


def test_an_answer_that_is_too_large_is_asked_for_smaller_and_the_window_is_known_from_then_on(
    endpoint: Endpoint,
) -> None:
    words = (
        "'max_tokens' is too large: 8192. maximum context length is 12000 tokens and your request has 4048 input tokens"
    )
    endpoint.answers = [refused(words), said(content="ok")]

    async def go() -> int | None:
        policy = OpenAIPolicy("m", base_url=endpoint.url)
        await policy.complete(Request("s", (Message("user", "hi"),), max_tokens=8192))
        return policy.window_tokens

    assert asyncio.run(go()) == 12000
    assert [body["max_tokens"] for body in endpoint.seen] == [8192, 12000 - 4048 - 16]


def test_a_conversation_that_is_too_long_is_an_overflow_with_its_numbers(endpoint: Endpoint) -> None:
    endpoint.answers = [refused("request (9000 tokens) exceeds the available context size (8192 tokens)")]
    with pytest.raises(ContextOverflow) as caught:
        ask(endpoint)
    assert (caught.value.window_tokens, caught.value.prompt_tokens, caught.value.infra) == (8192, 9000, False)


@pytest.mark.parametrize(
    "words",
    [
        "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
        "Unrecognized request argument supplied: max_tokens",
    ],
)
def test_the_limit_gets_the_name_that_the_refusal_asks_for(endpoint: Endpoint, words: str) -> None:
    endpoint.answers = [lambda body: refused(words) if "max_tokens" in body else said(content="ok")]
    ask(endpoint)
    assert [set(body) & {"max_tokens", "max_completion_tokens"} for body in endpoint.seen] == [
        {"max_tokens"},
        {"max_completion_tokens"},
    ]


HISTORY = (
    Message("user", "hi"),
    Message("assistant", "", "hm", (ToolCall("functions.view:0", "view"),)),
    Message("tool", "text", call_id="functions.view:0"),
)


def test_ids_that_an_endpoint_refuses_are_sent_plainer(endpoint: Endpoint) -> None:
    def strict(body: dict[str, Any]) -> tuple[int, Any]:
        ids = [call["id"] for row in body["messages"] for call in row.get("tool_calls", ())]
        return refused("Invalid id") if any(not re.fullmatch(r"[\w-]{1,40}", id) for id in ids) else said(content="ok")

    endpoint.answers = [strict]
    assert ask(endpoint, Request("s", HISTORY)).message.text == "ok"
    assert [body["messages"][2]["tool_call_id"] for body in endpoint.seen] == ["functions.view:0", "functions_view_0"]


def test_an_endpoint_that_misses_thinking_of_another_models_turn_gets_a_placeholder(endpoint: Endpoint) -> None:
    def thinks(body: dict[str, Any]) -> tuple[int, Any]:
        missing = any("tool_calls" in row and not row.get("reasoning_content") for row in body["messages"])
        return refused("Missing `reasoning_content` field in the assistant message") if missing else said(content="ok")

    endpoint.answers = [thinks]
    theirs = replace(HISTORY[1], provider="https://b.example/v1#m", thinking_fields=("reasoning_content",))
    assert ask(endpoint, Request("s", (HISTORY[0], theirs, HISTORY[2]))).message.text == "ok"
    assert endpoint.seen[-1]["messages"][1]["reasoning_content"] != "hm", "another provider's thinking is not sent here"
    assert ask(endpoint, Request("s", HISTORY)).message.text == "ok"
    assert endpoint.seen[-1]["messages"][1]["reasoning_content"] == "hm", "that of a session from before is"


def test_a_change_that_does_not_help_is_not_kept(endpoint: Endpoint) -> None:
    """One conversation that an endpoint refuses must not spoil the others of its policy."""
    signed = replace(HISTORY[1], thinking_fields=("reasoning_content",))

    def picky(body: dict[str, Any]) -> tuple[int, Any]:
        rows = [row for row in body["messages"] if "tool_calls" in row]
        good = all(row.get("reasoning_content") == "hm" for row in rows)
        return said(content="ok") if good else refused("Missing `reasoning_content` field")

    async def go() -> None:
        policy = OpenAIPolicy("m", base_url=endpoint.url)
        own = replace(signed, provider=provider_of(endpoint.url, "m"))
        for turn, fine in ((replace(signed, thinking="other"), False), (own, True)):
            request = Request("s", (HISTORY[0], turn, HISTORY[2]))
            if fine:
                await policy.complete(request)
            else:
                with pytest.raises(PolicyError, match="Missing"):
                    await policy.complete(request)

    endpoint.answers = [picky]
    asyncio.run(go())


@pytest.mark.parametrize(
    "words",
    [
        "reasoning_content is not supported in input messages",
        "Extra inputs are not permitted: messages.1.reasoning_content",
        "messages.1.reasoning_content: this field must be removed",
        "reasoning_content must be absent",
    ],
)
def test_an_endpoint_that_refuses_thinking_gets_none_back(endpoint: Endpoint, words: str) -> None:
    def plain(body: dict[str, Any]) -> tuple[int, Any]:
        if any("reasoning_content" in row for row in body["messages"]):
            return refused(words)
        return said(content="ok", reasoning_content="hm")

    async def go() -> int:
        policy = OpenAIPolicy("m", base_url=endpoint.url)
        first = await policy.complete(Request("s", (Message("user", "hi"),)))
        await policy.complete(Request("s", (Message("user", "hi"), first.message, Message("user", "on"))))
        return len(endpoint.seen)

    endpoint.answers = [plain]
    assert asyncio.run(go()) in (3, 4)


def test_a_wait_before_a_repetition_is_announced_with_its_reason(endpoint: Endpoint) -> None:
    waits: list[RetryWait] = []
    endpoint.answers = [refused("slow down", 429), said(content="ok")]
    ask(endpoint, Request("s", (Message("user", "hi"),), on_wait=waits.append))
    assert [(wait.reason, wait.number, wait.of) for wait in waits] == [("HTTP 429: slow down", 1, 5)]
    assert waits[0].seconds > 0


@pytest.mark.parametrize("status", [307, 308])
def test_a_redirect_within_the_host_is_followed_and_remembered(endpoint: Endpoint, status: int) -> None:
    endpoint.answers = [(status, "", {"Location": "/v2/chat/completions"}), said(content="ok")]
    assert ask(endpoint).message.text == "ok" and len(endpoint.seen) == 2


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirect_to_another_host_is_for_the_person_to_decide(endpoint: Endpoint, status: int) -> None:
    endpoint.answers = [(status, "", {"Location": "http://elsewhere.invalid/v1/chat/completions"})]
    with pytest.raises(PolicyError, match="give http://elsewhere.invalid/v1 instead of http://127.0.0.1"):
        ask(endpoint)
    assert len(endpoint.seen) == 1


def test_a_redirect_in_a_circle_ends(endpoint: Endpoint) -> None:
    endpoint.answers = [lambda body: (308, "", {"Location": f"/{len(endpoint.seen) % 2}/chat/completions"})]
    with pytest.raises(PolicyError):
        ask(endpoint)


def test_the_remedy_names_the_command_that_was_run(endpoint: Endpoint) -> None:
    endpoint.answers = [refused("unknown field: seed")]
    with pytest.raises(PolicyError, match="leave it out with etude agent --omit FIELD"):
        ask(endpoint, command="etude agent")


def test_an_error_that_repeats_the_key_does_not_show_it(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_KEY", "sk-made-up-456")
    endpoint.answers = [refused("x" * 290 + "Incorrect API key provided: sk-made-up-456", 401)]
    with pytest.raises(PolicyError) as caught:
        ask(endpoint, api_key_env="SOME_KEY")
    assert "sk-made" not in str(caught.value) + caught.value.refusal


@pytest.mark.parametrize("field", ["temperature", "tools", "stream_options", "stream", "max_tokens", "model"])
def test_any_field_can_be_omitted(endpoint: Endpoint, field: str) -> None:
    endpoint.answers = [said(content="ok")]
    tool = {"type": "function", "function": {"name": "view"}}
    ask(endpoint, Request("s", (Message("user", "x"),), (tool,), on_delta=lambda part, text: None), omit=(field,))
    assert field not in endpoint.seen[0] and endpoint.seen[0]["messages"]


def test_a_redirect_to_another_port_never_gets_the_key(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_KEY", "sesame-sesame")
    reached: list[str] = []

    class Other(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            reached.append(str(self.headers.get("Authorization")))
            self.send_error(500)

        def log_message(self, *args: Any) -> None:
            """Silent."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Other) as other:
        threading.Thread(target=other.serve_forever, args=(0.01,), daemon=True).start()
        endpoint.answers = [(307, "", {"Location": f"http://127.0.0.1:{other.server_port}/v1/chat/completions"})]
        with pytest.raises(PolicyError, match=f"give http://127.0.0.1:{other.server_port}/v1 instead of"):
            ask(endpoint, api_key_env="SOME_KEY")
        other.shutdown()
    assert reached == []


@pytest.mark.parametrize("location", ["http://[::1/x", "http://127.0.0.1:abc/x"])
def test_a_redirect_to_no_address_is_an_error_that_names_it(endpoint: Endpoint, location: str) -> None:
    endpoint.answers = [(307, "", {"Location": location})]
    with pytest.raises(PolicyError, match="location header"):
        ask(endpoint)


@pytest.mark.parametrize("url", ["http://h:abc/v1", "http://h:99999/v1", "http://[::1/v1", "h:8000/v1"])
def test_an_address_that_is_none_is_refused_before_anything_is_asked(url: str) -> None:
    with pytest.raises(AddressError, match="write one like"):
        OpenAIPolicy("m", base_url=url)


def test_no_request_goes_without_its_messages() -> None:
    with pytest.raises(ValueError, match="no request goes without messages"):
        OpenAIPolicy("m", base_url="http://127.0.0.1:9/v1", omit=("seed", "messages"))


def test_certificates_that_can_not_be_read_are_a_fault_with_the_remedy(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", "/nonexistent")
    with pytest.raises(PolicyError, match="SSL_CERT_FILE=/nonexistent can't be read"):
        ask(endpoint)
