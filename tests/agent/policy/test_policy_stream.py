"""The endpoint policy's stream against a real HTTP server: pieces, retries, servers that stream badly or not at all."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from etude.agent.policy import openai
from etude.agent.policy.openai import OpenAIPolicy
from etude.agent.policy.protocol import PolicyError, Request
from etude.core.trace.message import Message, ToolCall


@dataclass
class Streams:
    """Plays (content type, bytes) in order, the last one for ever."""

    url: str = ""
    answers: list[tuple[str, bytes]] = field(default_factory=list)
    seen: list[dict[str, Any]] = field(default_factory=list)


@pytest.fixture
def streams(monkeypatch: pytest.MonkeyPatch) -> Iterator[Streams]:
    monkeypatch.setattr(openai, "FIRST_WAIT_S", 0.001)
    here = Streams()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            here.seen.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            kind, data = here.answers.pop(0) if len(here.answers) > 1 else here.answers[0]
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *args: Any) -> None:
            """Silent."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    here.url = f"http://127.0.0.1:{server.server_port}/v1"
    yield here
    server.shutdown()


SSE = "text/event-stream; charset=utf-8"


def sse(*rows: Any) -> bytes:
    return b"".join(b"data: " + (row if isinstance(row, bytes) else json.dumps(row).encode()) + b"\n\n" for row in rows)


def piece(**delta: Any) -> dict[str, Any]:
    return {"choices": [{"delta": delta}]}


END = {"choices": [{"delta": {}, "finish_reason": "stop"}]}
USAGE = {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3}}


async def stream_events(streams: Streams, **changes: Any) -> tuple[Any, list[tuple[str, str]]]:
    pieces: list[tuple[str, str]] = []
    policy = OpenAIPolicy("m", base_url=streams.url, max_retries=2)
    request = Request("s", (Message("user", "hi"),), on_delta=lambda part, text: pieces.append((part, text)), **changes)
    try:
        return await policy.complete(request), pieces
    finally:
        await policy.close()


async def test_pieces_are_reported_and_the_turn_is_what_they_make(streams: Streams) -> None:
    call = {"index": 0, "id": "c", "function": {"name": "grep", "arguments": '{"pattern": '}}
    rest = {"index": 0, "function": {"arguments": '"x"}'}}
    rows = [
        piece(reasoning_content="hm"),
        piece(content="o"),
        piece(content="k"),
        piece(tool_calls=[call]),
        piece(tool_calls=[rest]),
    ]
    streams.answers = [(SSE, sse(*rows, END, USAGE, b"[DONE]"))]
    answer, pieces = await stream_events(streams)
    assert answer.message == Message("assistant", "ok", "hm", (ToolCall("c", "grep", {"pattern": "x"}),))
    assert pieces == [("thinking", "hm"), ("text", "o"), ("text", "k")]
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == (7, 3)
    assert streams.seen[0]["stream"] is True and streams.seen[0]["stream_options"] == {"include_usage": True}


@pytest.mark.parametrize(
    "broken", [sse(piece(content="on")), sse(piece(content="on"), {"error": "overloaded"}), sse(piece(content="on"), b"{torn")]
)  # fmt: skip
async def test_a_stream_that_breaks_is_asked_for_again_and_its_pieces_are_void(broken: bytes, streams: Streams) -> None:
    streams.answers = [(SSE, broken), (SSE, sse(piece(content="two"), END))]
    answer, pieces = await stream_events(streams)
    assert answer.message == Message("assistant", "two")
    assert pieces == [("text", "on"), ("text", ""), ("text", "two")]


async def test_a_server_that_does_not_stream_is_read_as_it_answers(streams: Streams) -> None:
    body = {"choices": [{"message": {"content": "whole"}, "finish_reason": "stop"}]}
    streams.answers = [("application/json", json.dumps(body).encode())]
    answer, pieces = await stream_events(streams)
    assert answer.message == Message("assistant", "whole") and pieces == []


async def test_a_conversation_too_long_reported_within_the_stream_is_the_policys_fault(streams: Streams) -> None:
    streams.answers = [(SSE, sse({"error": {"message": "maximum context length is 4096 tokens"}}))]
    with pytest.raises(PolicyError) as refused:
        await stream_events(streams)
    assert not refused.value.infra and len(streams.seen) == 1


async def test_effort_is_sent_unless_it_is_what_every_endpoint_takes_as_given(streams: Streams) -> None:
    streams.answers = [(SSE, sse(piece(content="x"), END))]
    for effort in ("low", "medium", "high"):
        await stream_events(streams, effort=effort)
    assert [body.get("reasoning_effort") for body in streams.seen] == ["low", None, "high"]


TURN = [piece(reasoning_content="hm"), piece(content="all"), piece(content=" done")]


@pytest.mark.parametrize("kind", ["text/plain", "application/octet-stream", "application/json", "", SSE])
async def test_a_stream_is_read_as_one_whatever_type_it_declares(kind: str, streams: Streams) -> None:
    streams.answers = [(kind, b"\n: hello\n\n" + sse(*TURN, END, b"[DONE]"))]
    answer, pieces = await stream_events(streams)
    assert answer.message == Message("assistant", "all done", "hm") and len(pieces) == 3


async def test_json_in_a_stream_s_clothes_is_read_as_json(streams: Streams) -> None:
    body = {"choices": [{"message": {"content": "whole"}, "finish_reason": "stop"}]}
    streams.answers = [(SSE, json.dumps(body).encode())]
    assert (await stream_events(streams))[0].message == Message("assistant", "whole")


async def test_done_ends_a_stream_that_gives_no_reason(streams: Streams) -> None:
    streams.answers = [(SSE, sse(*TURN, b"[DONE]"))]
    assert (await stream_events(streams))[0].message == Message("assistant", "all done", "hm") and len(
        streams.seen
    ) == 1


async def test_a_server_whose_streams_just_end_is_believed_the_second_time(streams: Streams) -> None:
    """The first time it may have been a break."""
    streams.answers = [(SSE, sse(*TURN))]
    answer, pieces = await stream_events(streams)
    assert answer.message == Message("assistant", "all done", "hm") and len(streams.seen) == 2
    assert ("text", "") in pieces, "what was shown of the first one is void"


async def test_a_stream_cut_within_a_call_is_never_believed(streams: Streams) -> None:
    call = {"index": 0, "id": "c", "function": {"name": "grep", "arguments": '{"patt'}}
    streams.answers = [(SSE, sse(piece(tool_calls=[call])))]
    with pytest.raises(PolicyError, match="broke off"):
        await stream_events(streams)
    assert len(streams.seen) == 3


async def test_an_error_in_a_stream_that_will_not_pass_is_not_tried_again(streams: Streams) -> None:
    streams.answers = [(SSE, sse({"error": {"message": "no such model", "code": 404}}))]
    with pytest.raises(PolicyError, match="HTTP 404: no such model"):
        await stream_events(streams)
    assert len(streams.seen) == 1


async def test_a_last_event_without_a_blank_line_behind_it_counts(streams: Streams) -> None:
    streams.answers = [(SSE, sse(*TURN, END).rstrip())]
    assert (await stream_events(streams))[0].message.text == "all done" and len(streams.seen) == 1
