"""Which conversation a request goes on with, and what becomes of its tokens: without a socket."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable

import pytest
from captured import BASH, Agent, TokenPolicy, run  # pyright: ignore[reportMissingImports]
from hypothesis import given
from hypothesis import strategies as st

from etude.agent.policy.protocol import Request
from etude.agent.policy.scripted import EchoPolicy, ScriptedPolicy
from etude.agent.proxy.ask import ProxyRequestError
from etude.agent.proxy.graph import Node, match
from etude.core.trace.message import Message, ToolCall

SYSTEM, USER = Message("system", "You fix bugs."), Message("user", "Fix a.py")
MESSAGES = st.builds(Message, st.sampled_from(["user", "assistant", "system"]), st.text(max_size=3))


def result(message: Message, text: str) -> Message:
    """The answer to a turn's one call."""
    return Message("tool", text, call_id=message.calls[0].id)


@given(st.lists(st.lists(MESSAGES, max_size=5), max_size=8))
def test_a_conversation_that_was_hung_is_found_again_and_shares_what_it_repeats(talks: list[list[Message]]) -> None:
    root, hung = Node(None), 0
    for talk in talks:
        found = match(root, talk)
        node = found.node
        for message in found.new:
            node, hung = node.add(Node(message)), hung + 1
        again = match(root, talk)
        assert again.new == () and len(again.node.path()) == len(talk)
    prefixes = {
        tuple((m.role, m.text.strip() if m.role == "assistant" else m.text) for m in talk[: i + 1])
        for talk in talks for i in range(len(talk))
    }  # fmt: skip
    assert hung == len(prefixes)


def test_a_turn_sent_back_without_thinking_with_other_ids_and_blanks_is_the_same_turn() -> None:
    root = Node(None)
    said = Message("assistant", "I look. ", "Hm.", (ToolCall("c0", "bash", {"command": "ls"}),))
    node = root.add(Node(USER)).add(Node(said, turn=True))
    echo = Message("assistant", "I look.", calls=(ToolCall("call_77", "bash", {"command": "ls"}),))
    found = match(root, [USER, echo, Message("tool", "a.py", call_id="call_77")])
    assert found.node is node
    assert found.new == (Message("tool", "a.py", call_id="c0"),), "the session keeps its own ids"
    other = Message("assistant", "I look.", "Another thought", echo.calls)
    assert match(root, [USER, other]).node is not node, "thinking that was changed is another message"


@pytest.mark.parametrize("family", ["qwen3", "qwen3-coder", "kimi-k2", "glm-4.5", "gpt-oss"])
async def test_a_request_that_continues_is_bridged_and_the_session_is_one_sample(
    tmp_path: Path, make_renderer: Callable[..., Any], family: str
) -> None:
    renderer = make_renderer(family)
    policy = TokenPolicy(renderer, lambda request: run(f"echo {len(request.messages)}"))
    agent = Agent(tmp_path, policy, renderer)
    talk = [SYSTEM, USER]
    for _ in range(4):
        talk.append(await agent.ask(*talk))
        talk.append(result(talk[-1], "ok"))
    summary, session = await agent.end()
    assert (summary["samples"], summary["forks"], summary["branches"]) == (1, 0, 1)
    (segment,) = session.segments()
    for before, after in zip(policy.requests, policy.requests[1:], strict=False):
        assert after.prompt_ids[: len(before.prompt_ids)] == before.prompt_ids
    last = policy.requests[-1].prompt_ids
    assert segment.ids.tolist()[: len(last)] == list(last)
    assert sorted({int(v) for v in segment.versions[segment.sampled]}) == [1, 2, 3, 4]
    assert segment.logprobs[segment.sampled].tolist() == [-0.5] * int(segment.sampled.sum())
    stored = sum(len(entry.tokens.ids) for entry in session.entries if entry.tokens)
    assert stored == len(segment), "only added tokens are stored"
    (counted,) = session.of("counters")
    report = {name: counted.data["counters"][name] for name in ("turns", "calls_bash", "shell_share", "branches")}
    assert report == {"turns": 4, "calls_bash": 3, "shell_share": 1, "branches": 1}, "the last call was never answered"
    assert counted.data["counters"]["repeated_calls"] == 0


async def test_compaction_and_sub_agents_become_branches_that_share_their_beginning(
    tmp_path: Path, make_renderer: Callable[..., Any]
) -> None:
    renderer = make_renderer("qwen3-coder")
    policy = TokenPolicy(renderer, lambda request: run(f"step {len(request.messages)}"))
    agent = Agent(tmp_path, policy, renderer)
    first = await agent.ask(SYSTEM, USER)
    await agent.ask(SYSTEM, USER, first, result(first, "ok"))
    await agent.ask(SYSTEM, Message("user", "Summary so far: nothing works. Go on."))
    await agent.ask(Message("system", "You search."), Message("user", "Where is a.py?"), tools=())
    summary, session = await agent.end()
    assert (summary["branches"], summary["samples"], summary["forks"]) == (3, 3, 0)
    assert len({request.session_id for request in policy.requests}) == 3, "the engine keeps each conversation's cache"
    assert sorted(policy.released) == sorted({request.session_id for request in policy.requests})
    systems = [e for e in session.of("message") if e.data["role"] == "system"]
    assert len(systems) == 2, "the compacted conversation hangs on the system prompt that it repeats"
    assert systems[0].tokens is not None and len(systems[0].tokens.ids) > 0
    assert systems[1].data["foreign"] == {"tools": []}
    total = sum(int(segment.sampled.sum()) for segment in session.segments())
    assert total == summary["sampled_tokens"]


async def test_a_changed_history_branches_where_it_changed_and_no_token_is_trained_twice(
    tmp_path: Path, make_renderer: Callable[..., Any]
) -> None:
    renderer = make_renderer("qwen3-coder")
    policy = TokenPolicy(renderer, lambda request: run(f"step {len(request.messages)}"))
    agent = Agent(tmp_path, policy, renderer)
    first = await agent.ask(SYSTEM, USER)
    second = await agent.ask(SYSTEM, USER, first, result(first, "a long output"))
    elided = result(first, "(elided)")
    await agent.ask(SYSTEM, USER, first, elided, second, result(second, "ok"))
    summary, session = await agent.end()
    assert summary["branches"] == 2
    segments = session.segments()
    assert len(segments) == 2
    assert sum(int(segment.sampled.sum()) for segment in segments) == summary["sampled_tokens"]
    assert all(len(set(map(int, s.versions[s.sampled]))) in (1, 2) for s in segments)
    longest = max(segments, key=len).ids.tolist()
    assert longest[: len(policy.requests[2].prompt_ids)] == list(policy.requests[2].prompt_ids)


async def test_a_prompt_that_can_not_go_on_forks_and_is_counted(
    tmp_path: Path, make_renderer: Callable[..., Any]
) -> None:
    renderer = make_renderer("qwen3")  # its template drops thinking when the user speaks again
    policy = TokenPolicy(renderer, lambda request: Message("assistant", f"said {len(request.messages)}", "I think."))
    agent = Agent(tmp_path, policy, renderer)
    first = await agent.ask(USER)
    again = (USER, Message("assistant", first.text), Message("user", "And b.py"))
    await agent.ask(*again)
    await agent.ask(*again)  # the same prompt once more, not another fork
    summary, session = await agent.end()
    (fork,) = session.of("fork")
    assert summary["forks"] == 1 and fork.tokens is not None
    assert fork.tokens.ids == list(policy.requests[1].prompt_ids) == list(policy.requests[2].prompt_ids)
    assert fork.tokens.ids == renderer.render([USER, first, again[2]], [BASH])
    assert session.entries[fork.data["held_by"]].data["text"] == "And b.py"
    assert [int(s.sampled.sum()) > 0 for s in session.segments()] == [True, True, True]


async def test_a_text_policy_s_messages_are_recorded_without_tokens(tmp_path: Path) -> None:
    agent = Agent(tmp_path, EchoPolicy())
    said = await agent.ask(USER, tools=())
    await agent.ask(USER, said, Message("user", "More"), tools=())
    summary, session = await agent.end()
    assert summary["samples"] == 0 and summary["turns"] == 2
    assert [entry.parent for entry in session.of("message", "completion")] == [None, 0, 1, 2]
    assert all(entry.tokens is None for entry in session.entries)


async def test_a_text_policy_with_a_renderer_gives_demonstrations(
    tmp_path: Path, make_renderer: Callable[..., Any]
) -> None:
    renderer = make_renderer("kimi-k2")
    agent = Agent(tmp_path, ScriptedPolicy([run("ls"), Message("assistant", "Done.")]), renderer)
    first = await agent.ask(SYSTEM, USER)
    await agent.ask(SYSTEM, USER, first, result(first, "a.py"))
    summary, session = await agent.end()
    (segment,) = session.segments()
    assert summary["samples"] == 1 and set(segment.versions[segment.sampled]) == {-1}
    assert renderer.parse(segment.ids[segment.sampled].tolist()[-3:]).role == "assistant"


async def test_a_malformed_turn_is_reported_as_text_kept_and_goes_on(
    tmp_path: Path, make_renderer: Callable[..., Any]
) -> None:
    renderer = make_renderer("qwen3")
    policy = TokenPolicy(renderer, lambda request: run("ls"))
    agent = Agent(tmp_path, policy, renderer)
    whole = renderer.answer(run("ls"))

    async def cut(request: Request) -> Any:
        from etude.core.trace.completion import Completion, SampledTokens

        policy.requests.append(request)
        ids = whole[:-4]
        return Completion(tokens=SampledTokens(ids, [-1.0] * len(ids), [0] * len(ids)), finish="length")

    policy.complete, sound = cut, policy.complete
    said = await agent.ask(USER)
    assert said.problem is not None and not said.calls
    policy.complete = sound
    await agent.ask(USER, Message("assistant", said.text), Message("user", "Say it again"))
    summary, session = await agent.end()
    assert summary["malformed_turns"] == 1
    kept = [s for s in session.segments() if whole[:-4] == s.ids[s.sampled].tolist()[: len(whole) - 4]]
    assert kept, "its ids are training data"


async def test_what_can_not_be_sampled_is_refused(tmp_path: Path, make_renderer: Callable[..., Any]) -> None:
    renderer = make_renderer("qwen3")
    agent = Agent(tmp_path, TokenPolicy(renderer, lambda r: run("ls")), renderer, context_tokens=300)
    with pytest.raises(ProxyRequestError, match="must end with a message for the model"):
        await agent.ask(USER, Message("assistant", "I will"))
    with pytest.raises(ProxyRequestError, match="context_length_exceeded"):
        await agent.ask(Message("user", "long " * 500))
    await agent.session.end()
    with pytest.raises(ProxyRequestError, match="has ended") as ended:
        await agent.ask(USER)
    assert ended.value.status == 409
