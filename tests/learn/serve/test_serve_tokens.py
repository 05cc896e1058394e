"""Over HTTP an answer comes with the tokens that the engine sampled: the agent's session, the capture proxy's and SFT see those."""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from serve_lab import NAME, ScriptedThread, served, served_model

from etude.agent.harness.agent import AgentOutcome, build_agent
from etude.agent.harness.dependencies import AgentDependencies
from etude.agent.harness.header import session_header
from etude.agent.harness.settings import HarnessSettings
from etude.agent.harness.task_facts import TaskFacts
from etude.agent.policy.openai import OpenAIPolicy
from etude.agent.policy.protocol import PolicyError, Request
from etude.agent.policy.wire.errors import WireError
from etude.agent.policy.wire.token_fields import read_tokens, token_fields
from etude.agent.proxy.book import SessionRegistry
from etude.agent.proxy.serving import serving
from etude.agent.proxy.settings import CaptureSettings
from etude.core.trace.completion import Completion, SampledTokens
from etude.core.trace.message import Message, ToolCall
from etude.core.trace.reader import read_session
from etude.core.trace.writer import SessionWriter
from etude.rollout.collect.taught import segments as learned_segments
from etude.tasks.generate.exercises.memory_sandbox import MemorySandbox

FILES = {"core.py": "def total(items):\n    return 0\n"}
TURNS = (
    [ToolCall("c0", "grep", {"pattern": "def total"})],
    [ToolCall("c1", "edit", {"path": "core.py", "old": "return 0", "new": "return sum(items)"})],
    [ToolCall("c2", "done", {"message": "fixed"})],
)
SETTINGS = HarnessSettings(preset="nano", max_session_tokens=100_000)
FACTS = TaskFacts("task", "fix total", ("python", "check.py"))


class RecordingThread:
    """An engine thread whose results are kept."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.done: list[tuple[Request, Completion]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def submit(self, request: Request, deliver: Any, on_tokens: Any = None) -> Future[int]:
        def keep(result: Any) -> None:
            self.done.append((request, result))
            deliver(result)

        return self._inner.submit(request, keep, on_tokens)


def scripted(renderer: Any) -> ScriptedThread:
    answers = iter([renderer.answer(Message("assistant", calls=tuple(calls))) for calls in TURNS])
    return ScriptedThread(lambda request: next(answers))


async def attempt(policy: OpenAIPolicy, file: Path) -> AgentOutcome:
    recorder = SessionWriter(file, session_header(SETTINGS, policy, FACTS, session_id="s"), every="line")
    dependencies = AgentDependencies(MemorySandbox(FILES), FACTS, recorder=recorder)
    return await build_agent(SETTINGS, policy, dependencies).run()


async def session_over_http(renderer: Any, file: Path, *, listed: bool = True) -> tuple[AgentOutcome, ScriptedThread]:
    thread = scripted(renderer)
    async with served(replace(served_model(renderer), window=8192), thread) as (running, _):
        policy = OpenAIPolicy(NAME, base_url=f"{running.address}/v1")
        if listed:
            await policy.read_list()
        outcome = await attempt(policy, file)
        await policy.close()
    return outcome, thread


async def test_a_session_over_http_holds_the_tokens_that_the_engine_sampled(make_renderer, tmp_path: Path) -> None:
    renderer, file = make_renderer("smollm2"), tmp_path / "s.jsonl"
    outcome, thread = await session_over_http(renderer, file)
    [segment] = read_session(file).segments()
    sampled = [renderer.answer(Message("assistant", calls=tuple(calls))) for calls in TURNS]
    assert segment.ids[segment.sampled].tolist() == sum(sampled, [])
    assert set(segment.logprobs[segment.sampled]) == {-0.5} and set(segment.versions[segment.sampled]) == {0}
    last = thread.requests[-1].prompt_ids
    assert segment.ids.tolist() == [*last, *sampled[-1]]  # the prompts are those that the engine was sent
    assert np.array_equal(outcome.segments[0].ids, segment.ids)


async def test_rendering_the_session_again_gives_the_same_tokens(make_renderer, tmp_path: Path) -> None:
    renderer, file = make_renderer("smollm2"), tmp_path / "s.jsonl"
    await session_over_http(renderer, file)
    session = read_session(file)
    [segment] = session.segments()
    said = [Message.from_json(entry.data["message"]) for entry in session.of("completion")]
    results = [
        Message("tool", entry.data["text"], call_id=entry.data["call_id"]) for entry in session.of("tool_result")
    ]
    opening = [Message.from_json(entry.data) for entry in session.of("message")]
    tools = session.header.harness_facts["schemas"]
    history = [*opening, said[0], results[0], said[1], results[1]]
    whole = [*renderer.render(history, tools), *renderer.answer(said[2], first_call=2)]
    assert segment.ids.tolist() == whole


async def test_sft_learns_from_a_session_over_http_as_from_one_of_the_engine(make_renderer, tmp_path: Path) -> None:
    renderer, file = make_renderer("smollm2"), tmp_path / "s.jsonl"
    await session_over_http(renderer, file)
    session = read_session(file)
    [learned] = learned_segments(session, renderer)
    assert set(learned.versions[learned.sampled]) == {0}  # sampled by version 0, not rendered for the student
    [rendered] = learned_segments(session, make_renderer("qwen3"))
    assert set(rendered.versions[rendered.sampled]) == {-1}  # the tokens of another format are no student's


async def test_an_endpoint_that_does_not_list_the_extension_is_asked_as_ever(make_renderer, tmp_path: Path) -> None:
    outcome, _ = await session_over_http(make_renderer("smollm2"), tmp_path / "s.jsonl", listed=False)
    assert outcome.reason == "done" and outcome.segments == []
    assert all(entry.tokens is None for entry in read_session(tmp_path / "s.jsonl").entries)


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_brings_logprobs_and_routes_of_the_engine_unchanged(model, thread, stream: bool) -> None:
    recording, heard = RecordingThread(thread), []
    async with served(model, recording) as (running, _):
        policy = OpenAIPolicy(NAME, base_url=f"{running.address}/v1")
        await policy.read_list()
        tell = (lambda part, piece: heard.append(piece)) if stream else None
        messages = (Message("user", f"count, stream {stream}"),)
        answer = await policy.complete(Request("s", messages, max_tokens=12, seed=3, on_delta=tell))
        await policy.close()
    [(asked, done)] = recording.done
    assert answer.tokens is not None and done.tokens is not None
    assert answer.prompt_ids == asked.prompt_ids == tuple(model.renderer.render(messages, ()))
    ours, theirs = answer.tokens, done.tokens
    assert (ours.ids, ours.logprobs, ours.versions) == (theirs.ids, theirs.logprobs, theirs.versions)
    assert ours.routes is not None and theirs.routes is not None and ours.route_start == theirs.route_start
    assert ours.routes.dtype == theirs.routes.dtype and np.array_equal(ours.routes, theirs.routes)


class Rewriting:
    """A policy whose server drops the first message of a history from the second turn on."""

    name, takes_tokens, served_chat = "rewriting", False, "abc"

    def __init__(self) -> None:
        self.turn = 0

    async def complete(self, request: Request) -> Completion:
        self.turn += 1
        call = ToolCall(f"c{self.turn}", *(("grep", {"pattern": "x"}) if self.turn < 3 else ("done", {"message": ""})))
        prompt = ((1, 2, 3), (2, 3, 4, 5), (2, 3, 4, 5, 12, 6))[self.turn - 1]
        tokens = SampledTokens([10 + self.turn], [-0.1], [7])
        return Completion(Message("assistant", calls=(call,)), tokens, prompt_ids=prompt)

    async def release(self, session_id: str) -> None:
        """Nothing is kept."""


async def test_a_prompt_that_leaves_the_held_tokens_forks_and_every_token_counts_once(tmp_path: Path) -> None:
    policy: Any = Rewriting()
    outcome = await attempt(policy, tmp_path / "s.jsonl")
    written = read_session(tmp_path / "s.jsonl").segments()
    for found in (outcome.segments, written):
        assert [segment.ids.tolist() for segment in found] == [[1, 2, 3, 11], [2, 3, 4, 5, 12, 6, 13]]
        assert [segment.sampled.sum() for segment in found] == [1, 2]


async def captured(renderer: Any, folder: Path, *, stream: bool, given: Any = None) -> tuple[dict[str, Any], Any, Any]:
    """One request through the proxy: the answer's fields, the session, and what the engine was asked."""
    thread = scripted(renderer)
    async with served(replace(served_model(renderer), window=8192), thread) as (running, _):
        policy = OpenAIPolicy(NAME, base_url=f"{running.address}/v1")
        await policy.read_list()
        book = SessionRegistry(policy, CaptureSettings(folder, context_tokens=None), given)
        async with serving(book) as address:
            session, key = book.open()
            async with httpx.AsyncClient(headers={"Authorization": f"Bearer {key}"}) as http:
                listed = (await http.get(f"{address}/v1/models")).json()["data"][0]
                body = {
                    "model": NAME, "messages": [{"role": "user", "content": "hi"}], "return_token_ids": True, "stream": stream
                }  # fmt: skip
                answer = await http.post(f"{address}/v1/chat/completions", json=body)
            await session.end()
        await policy.close()
    assert listed["return_token_ids"] is True and listed["chat_fingerprint"] == (given or renderer).fingerprint
    if stream:
        rows = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: {")]
        return rows[-1], read_session(session.path), thread
    return answer.json(), read_session(session.path), thread


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("with_renderer", [False, True])
async def test_the_proxy_passes_the_tokens_on_and_records_them(
    make_renderer, tmp_path: Path, stream: bool, with_renderer: bool
) -> None:
    renderer = make_renderer("smollm2")
    given = renderer if with_renderer else None
    body, session, thread = await captured(renderer, tmp_path, stream=stream, given=given)
    [choice] = body["choices"]
    sampled = renderer.answer(Message("assistant", calls=tuple(TURNS[0])))
    assert body["prompt_token_ids"] == list(thread.requests[0].prompt_ids) and choice["token_ids"] == sampled
    assert choice["etude"] == {"versions": [0] * len(sampled), "logprobs": [-0.5] * len(sampled)}
    [segment] = session.segments()
    assert segment.ids.tolist() == [*thread.requests[0].prompt_ids, *sampled]
    assert segment.sampled.tolist() == [False] * len(thread.requests[0].prompt_ids) + [True] * len(sampled)
    assert set(segment.versions[segment.sampled]) == {0}


async def test_the_proxy_renders_answers_of_another_format_as_demonstrations(make_renderer, tmp_path: Path) -> None:
    _, session, _ = await captured(make_renderer("smollm2"), tmp_path, stream=False, given=make_renderer("qwen3"))
    [segment] = session.segments()
    assert set(segment.versions[segment.sampled]) == {-1}


def fields(**changes: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    routes = np.arange(6, dtype=np.uint8).reshape(3, 2, 1)
    body, choice = token_fields([1, 2], SampledTokens([3, 4], [-0.5, -1.0], [0, 1], routes))
    choice["etude"] |= changes
    return body, choice


def test_fields_that_were_written_read_back_as_they_were() -> None:
    found = read_tokens(*fields())
    assert found is not None
    prompt, tokens = found
    assert prompt == (1, 2) and (tokens.ids, tokens.logprobs, tokens.versions) == ([3, 4], [-0.5, -1.0], [0, 1])
    assert tokens.routes is not None and tokens.routes.ravel().tolist() == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    "changes",
    [
        {"logprobs": [-0.5]},
        {"logprobs": [-0.5, float("nan")]},
        {"versions": ["0", "1"]},
        {"routes": {"data": "AAAA", "dtype": "uint8", "shape": [4, 1, 1], "start": 0}},
        {"routes": {"data": "AAAA", "dtype": "float64", "shape": [3, 1, 1], "start": 0}},
        {"routes": {"data": "AAAA", "dtype": "uint8", "shape": [3, 1, 1], "start": 2}},
        {"routes": {"data": "AA", "dtype": "uint8"}},
    ],
)
def test_fields_that_contradict_each_other_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(WireError):
        read_tokens(*fields(**changes))


class Contradicting:
    """A transport that answers with one logprob for two tokens."""

    def __init__(self) -> None:
        body, choice = fields(logprobs=[-0.5])
        message: dict[str, Any] = {"role": "assistant", "content": "x"}
        self.body = body | {"choices": [choice | {"message": message, "finish_reason": "stop"}]}

    def __call__(self, request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json=self.body)


async def test_contradicting_fields_are_the_endpoints_fault(monkeypatch) -> None:
    def connect(url: str, timeout_s: float) -> httpx.AsyncClient:
        return httpx.AsyncClient(transport=httpx.MockTransport(Contradicting()))

    monkeypatch.setattr("etude.agent.policy.openai.connect", connect)
    policy = OpenAIPolicy(NAME, base_url="http://127.0.0.1:9/v1")
    messages: Sequence[Message] = (Message("user", "x"),)
    with pytest.raises(PolicyError, match="2 token ids come with 1 logprobs"):
        await policy.complete(Request("s", tuple(messages)))
