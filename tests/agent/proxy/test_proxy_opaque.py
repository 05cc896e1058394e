"""An upstream provider gets back what it sent with a turn, whichever way the agent sends the turn back: no agent knows these fields."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from captured import Agent, run

from etude.agent.policy.protocol import Request
from etude.agent.policy.scripted import ScriptedPolicy
from etude.agent.policy.wire.outgoing import Outgoing
from etude.core.trace.message import Message, ToolCall

HERE = "https://a.example/v1#m"
SIGNED = Message(
    "assistant", "look", "hm", (ToolCall("c0", "bash", {"command": "ls"}, {"extra_content": {"signature": "s"}}),),
    provider=HERE, thinking_fields=("reasoning_content",), opaque={"reasoning_details": [{"data": "x"}]},
)  # fmt: skip
GO, ANSWER = Message("user", "go"), Message("tool", "a.txt", call_id="c0")


def upstream(seen: list[Request]) -> ScriptedPolicy:
    def answer(request: Request) -> Message:
        seen.append(request)
        return SIGNED if len(seen) == 1 else Message("assistant", "done")

    return ScriptedPolicy(answer)


AS_SENT_BACK = {
    "as the agent got it": replace(SIGNED, opaque={}, provider="", thinking_fields=()),
    "without its thinking": Message("assistant", "look", calls=(ToolCall("c0", "bash", {"command": "ls"}),)),
    "with blanks cut off": Message("assistant", " look\n", calls=(ToolCall("c0", "bash", {"command": "ls"}),)),
}


@pytest.mark.parametrize("back", AS_SENT_BACK.values(), ids=AS_SENT_BACK)
@pytest.mark.parametrize(
    "before", [(GO,), (Message("user", "another beginning"),)], ids=["same history", "rewritten history"]
)
async def test_the_upstream_provider_gets_back_what_it_sent(
    back: Message, before: tuple[Message, ...], tmp_path: Path
) -> None:
    seen: list[Request] = []
    agent = Agent(tmp_path, upstream(seen))
    await agent.ask(GO)
    await agent.ask(*before, back, ANSWER)
    row = Outgoing(HERE).rows(seen[1].messages)[1]
    assert row["reasoning_content"] == "hm" and row["reasoning_details"] == [{"data": "x"}]
    assert row["tool_calls"][0]["extra_content"] == {"signature": "s"}
    await agent.end()


async def test_a_turn_that_the_session_has_not_seen_brings_nothing(tmp_path: Path) -> None:
    seen: list[Request] = []
    agent = Agent(tmp_path, upstream(seen))
    await agent.ask(GO)
    await agent.ask(GO, run("cat b"), Message("tool", "b", call_id="x"))
    assert seen[1].messages[1].provider == ""
