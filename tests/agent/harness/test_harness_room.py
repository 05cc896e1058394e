"""A conversation that is too long for its model's window never ends a session: it becomes shorter, is summed up, and goes on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.agent.harness.agent import Agent
from etude.agent.harness.inbox import Inbox
from etude.agent.harness.replay import replay
from etude.agent.harness.settings import HarnessSettings
from etude.agent.harness.shortening import MIN_CHARS, digest, shortened, size
from etude.agent.metrics.tokens import CHARS_PER_TOKEN
from etude.agent.policy.protocol import ContextOverflow, PolicyError, Request
from etude.core.trace.completion import Completion, Usage
from etude.core.trace.message import Message, ToolCall
from etude.core.trace.schema import objections

Make = Callable[..., Agent]
LARGE = HarnessSettings.full(preset="search_replace", lint_delta_s=0.0)


@st.composite
def conversations(draw: st.DrawFn) -> list[Message]:
    said = [Message("system", "s" * 50), Message("user", "u" * draw(st.integers(1, 3000)))]
    for number in range(draw(st.integers(0, 5))):
        ids = [f"{number}-{i}" for i in range(draw(st.integers(0, 3)))]
        said.append(
            Message("assistant", "a" * draw(st.integers(0, 500)), calls=tuple(ToolCall(id, "read") for id in ids))
        )
        said += [Message("tool", "t" * draw(st.integers(0, 5000)), call_id=id) for id in ids]
    return said


def applied(messages: list[Message], texts: dict[int, str]) -> list[Message]:
    return [replace(message, text=texts.get(i, message.text)) for i, message in enumerate(messages)]


@given(conversations(), st.integers(0, 12_000))
def test_a_conversation_is_shortened_to_fit_or_as_far_as_it_goes(messages: list[Message], most: int) -> None:
    texts = shortened(messages, most)
    after = applied(messages, texts)
    if size(messages) <= most:
        assert texts == {}, "what fits stays as it is"
    elif size(after) > most:
        assert all(len(message.text) <= MIN_CHARS for message in after if message.role != "system")
    assert after[0] == messages[0], "the system prompt stays"
    assert all(len(text) < len(messages[place].text) for place, text in texts.items())


def test_old_results_go_first_and_those_of_the_last_turn_share_what_is_left() -> None:
    old, new = "o" * 4000, "n" * 3000
    messages = [
        Message("user", "go"), Message("assistant", calls=(ToolCall("a", "read"),)), Message("tool", old, call_id="a"),
        Message("assistant", calls=(ToolCall("b", "read"), ToolCall("c", "read"))),
        Message("tool", new, call_id="b"), Message("tool", "short", call_id="c"),
    ]  # fmt: skip
    assert set(shortened(messages, 4000)) == {2}
    texts = shortened(messages, 2000)
    assert set(texts) == {2, 4} and texts[2].startswith("[left out to make room: 4,000 characters")
    shorter = [replace(message, text=texts.get(place, message.text)) for place, message in enumerate(messages)]
    assert 2 not in shortened(shorter, 100)  # it says already how much is missing
    assert (
        texts[4].startswith("nnn") and texts[4].endswith("nnn") and "[3,000 characters, cut to make room]" in texts[4]
    )


class Windowed:
    """An endpoint with a window, which it may tell beforehand (`known`) or in its refusals (`tells`), or not at all."""

    takes_tokens = False
    name = "windowed"

    def __init__(
        self, limit: int, script: Callable[[Request], Message], *, known: bool = False, tells: bool = True, counts: bool = True
    ) -> None:  # fmt: skip
        self.limit, self.script, self.tells, self.counts = limit, script, tells, counts
        self.window_tokens = limit if known else None
        self.requests: list[Request] = []
        self.refused = 0

    async def complete(self, request: Request) -> Completion:
        count = size(request.messages) // CHARS_PER_TOKEN
        if count > self.limit:
            self.refused += 1
            if not self.tells:
                raise ContextOverflow("too long")
            self.window_tokens = self.limit
            raise ContextOverflow("too long", window_tokens=self.limit, prompt_tokens=count)
        self.requests.append(request)
        message = Message("assistant", "so far: all well") if request.extra.get("summary") else self.script(request)
        return Completion(message=message, usage=Usage(input_tokens=count if self.counts else 10, output_tokens=5))

    async def release(self, session_id: str) -> None: ...


def reader(turns: int, calls: int = 1) -> Callable[[Request], Message]:
    """Reads the same large file several times, in parallel, then answers."""
    made = {"turns": 0}

    def script(request: Request) -> Message:
        made["turns"] += 1
        if made["turns"] > turns:
            return Message("assistant", "done")
        return Message(
            "assistant", calls=tuple(ToolCall("k", "read_file", {"target_file": "big.txt"}) for _ in range(calls))
        )

    return script


BIG = {"big.txt": "".join(f"line {i} of a large file\n" for i in range(600))}  # some 14 kB


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("tells", [True, False])
async def test_a_session_gets_over_a_window_that_is_smaller_than_was_thought(
    agent: Make, make_sandbox: Any, known: bool, tells: bool
) -> None:
    policy = Windowed(6000, reader(6), known=known, tells=tells)
    outcome = await agent(policy, LARGE, sandbox=make_sandbox(BIG)).run()
    assert (outcome.reason, outcome.message) == ("message", "done")
    assert not known or policy.refused == 0, "a known window is kept to"
    for entry in outcome.session.entries:
        row = entry.to_json()
        assert objections(row) == [], row


@pytest.mark.parametrize("known", [True, False])
async def test_parallel_results_share_a_budget(agent: Make, make_sandbox: Any, known: bool) -> None:
    policy = Windowed(16_000, reader(1, calls=12), known=known)
    outcome = await agent(policy, LARGE, sandbox=make_sandbox(BIG)).run()
    assert outcome.reason == "message"
    lengths = [len(e.data["text"]) for e in outcome.session.of("tool_result")]
    assert not known or sum(lengths) < 16_000 * CHARS_PER_TOKEN * 7 // 8 and policy.refused == 0


async def test_a_request_that_is_longer_than_the_window_itself_is_cut(agent: Make, scene: Any) -> None:
    facts = replace(scene.FACTS, instruction="please " * 6000 + "THE END")
    policy = Windowed(6000, lambda request: Message("assistant", request.messages[-1].text[-7:]))
    outcome = await agent(policy, LARGE, facts=facts).run()
    assert (outcome.reason, outcome.message) == ("message", "THE END")


async def test_an_endpoint_that_counts_wrong_loses_no_more_than_it_must(agent: Make, make_sandbox: Any) -> None:
    policy = Windowed(9000, reader(6), tells=False, counts=False)
    outcome = await agent(
        policy, LARGE.model_copy(update={"summary_trigger_tokens": 0}), sandbox=make_sandbox(BIG)
    ).run()
    assert outcome.reason == "message" and policy.refused <= 4
    assert size(policy.requests[-1].messages) // CHARS_PER_TOKEN > 3000, "the newest results are still there"


async def test_an_endpoint_that_refuses_whatever_is_sent_ends_the_request_not_the_session(agent: Make) -> None:
    outcome = await agent(Windowed(0, reader(1), tells=False), LARGE).run()
    assert outcome.reason == "refused"


async def test_what_was_shortened_is_still_so_when_the_session_is_taken_up_again(
    agent: Make, make_sandbox: Any, scene: Any
) -> None:
    first = Windowed(6000, reader(5))
    short = LARGE.model_copy(update={"max_turns": 5, "summary_trigger_tokens": 0})
    held = (await agent(first, short, sandbox=make_sandbox(BIG)).run()).session
    assert held.of("shortened")
    second = Windowed(6000, lambda request: Message("assistant", "on"))
    resumed = replace(scene.FACTS, instruction="go on")
    outcome = await agent(second, LARGE, sandbox=make_sandbox(BIG), facts=resumed, resumed=held).run()
    assert outcome.reason == "message" and second.refused == 0


@pytest.mark.parametrize("known", [True, False])
async def test_a_shortened_session_replays(agent: Make, make_sandbox: Any, known: bool) -> None:
    policy = Windowed(6000, reader(6), known=known)
    outcome = await agent(policy, LARGE, sandbox=make_sandbox(BIG)).run()
    assert outcome.session.of("shortened", "summary")
    assert await replay(outcome.session, make_sandbox(BIG)) is None


async def test_an_answer_is_not_asked_for_larger_than_its_room(agent: Make, make_sandbox: Any) -> None:
    policy = Windowed(12_000, reader(2), known=True)
    await agent(policy, LARGE, sandbox=make_sandbox(BIG)).run()
    assert all(
        request.max_tokens < 12_000 - size(request.messages) // CHARS_PER_TOKEN for request in policy.requests[1:]
    )


@pytest.mark.parametrize(
    "trouble", [PolicyError("filtered", infra=False), PolicyError("HTTP 400", status=400), None], ids=["refused", "400", "empty"]
)  # fmt: skip
async def test_a_summary_that_the_model_can_not_write_is_what_was_said(
    agent: Make, trouble: PolicyError | None
) -> None:
    """`/compact` is the way out of a conversation that the endpoint refuses."""
    inbox = Inbox()
    asked: list[Request] = []

    class Stubborn:
        takes_tokens, name = False, "stubborn"

        async def complete(self, request: Request) -> Completion:
            asked.append(request)
            if request.extra.get("summary") and trouble is not None:
                raise trouble
            if request.extra.get("summary"):
                return Completion(message=Message("assistant"))
            if len(asked) == 1:
                inbox.summarize()
                inbox.close()
            return Completion(message=Message("assistant", "my first answer"))

        async def release(self, session_id: str) -> None: ...

    outcome = await agent(Stubborn(), LARGE, inbox=inbox).run()
    [summary] = outcome.session.of("summary")
    assert "answered: my first answer" in summary.data["text"]
    assert outcome.reason == "message"


def test_a_digest_holds_what_was_asked_and_said_last_and_is_short() -> None:
    said = [
        Message("user", "first"),
        Message("assistant", "x" * 9000),
        Message("user", "second"),
        Message("assistant", "y"),
    ]
    text = digest([*said, Message("user", "poison"), Message("user", "the query", summary=True)])
    assert "asked: second" in text and "answered: y" in text and len(text) < 2000
    assert "the query" not in text and "poison" not in text, "what was never answered may be what is refused"


def writer(turns: int, how: str) -> Callable[[Request], Message]:
    """Fills the window with what no text holds: `how` says with the arguments of small calls, of one large call, or with thinking."""
    made = {"turns": 0}

    def script(request: Request) -> Message:
        made["turns"] += 1
        if made["turns"] > turns:
            return Message("assistant", "done")
        count = 200_000 if how == "one" else 8000
        arguments = {"file_path": f"{made['turns']}.txt", "content": "x" * (10 if how == "thinking" else count)}
        thinking = "t" * 8000 if how == "thinking" else ""
        return Message("assistant", thinking=thinking, calls=(ToolCall("k", "write", arguments),))

    return script


@pytest.mark.parametrize("how", ["arguments", "one", "thinking"])
@pytest.mark.parametrize("summaries", [4, 0])
@pytest.mark.parametrize("tells", [True, False])
async def test_a_window_filled_by_calls_or_thinking_ends_no_session(
    agent: Make, make_sandbox: Any, how: str, summaries: int, tells: bool
) -> None:
    policy = Windowed(8192, writer(14, how), tells=tells)
    settings = LARGE.model_copy(update={"max_summaries": summaries})
    outcome = await agent(policy, settings, sandbox=make_sandbox({})).run()
    assert (outcome.reason, outcome.message) == ("message", "done") and policy.refused > 0
    assert not outcome.session.of("fault"), "what a digest gets over is no fault"
    for entry in outcome.session.entries:
        assert objections(entry.to_json()) == []
    assert await replay(outcome.session, make_sandbox({})) is None
