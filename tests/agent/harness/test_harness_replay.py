"""Promise 1 at this level: a recorded session, read from disk and built again, gives the same results and the same ids."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Callable

import pytest

from etude.agent.chat.byte_tokenizer import byte_tokenizer
from etude.agent.chat.nano import NanoRenderer
from etude.agent.harness.agent import Agent
from etude.agent.harness.header import session_header
from etude.agent.harness.replay import ReplayDifference, compare, replay
from etude.agent.harness.settings import HarnessSettings
from etude.agent.policy.scripted import ScriptedPolicy
from etude.core.trace.completion import Completion, Usage
from etude.core.trace.message import Message
from etude.core.trace.reader import read_session
from etude.core.trace.session import Session
from etude.core.trace.writer import SessionWriter

Make = Callable[..., Agent]
SUMMARIES = HarnessSettings(max_session_tokens=8000, max_tokens_per_turn=400, summary_trigger_tokens=110)


@pytest.fixture
def record(agent: Make, scene: Any, tmp_path: Path) -> Callable[..., Any]:
    """Run a policy, write its session, read it back."""

    async def run(policy: Any, settings: HarnessSettings, renderer: NanoRenderer | None) -> Session:
        header = session_header(settings, policy, scene.FACTS, renderer=renderer)
        path = tmp_path / f"{header.session_id}.jsonl"
        await agent(policy, settings, renderer=renderer, recorder=SessionWriter(path, header)).run()
        return read_session(path)

    return run


def script(scene: Any, *, summary: bool) -> list[Message]:
    return [scene.GOOD[0], *[Message("assistant", "bug in shop.py")] * summary, *scene.GOOD[2:]]


@pytest.mark.parametrize("kind", ["text", "usage", "expert", "tokens", "summary"])
async def test_a_session_replays_byte_for_byte_in_a_fresh_sandbox(
    record: Any, make_sandbox: Any, renderer: NanoRenderer, scene: Any, kind: str
) -> None:
    summary = kind in ("usage", "summary")
    messages: list[Any] = script(scene, summary=summary)
    if kind == "usage":  # without tokens the endpoint's reported usage triggers a summary, not the short texts
        messages[0] = Completion(messages[0], usage=Usage(input_tokens=100, output_tokens=20))
    tokens = kind in ("tokens", "summary")
    policy = scene.token_policy(renderer, messages) if tokens else ScriptedPolicy(messages)
    used = None if kind in ("text", "usage") else renderer
    session = await record(policy, SUMMARIES if summary else scene.ROOMY, used)
    assert session.of("end")[0].data["reason"] == "done"
    assert bool(session.of("summary")) == summary
    assert await replay(session, make_sandbox(), renderer=used) is None


async def test_a_verdict_added_after_the_session_is_kept_and_does_not_disturb_the_replay(
    agent: Make, make_sandbox: Any, scene: Any, tmp_path: Path
) -> None:
    policy = ScriptedPolicy(script(scene, summary=False))
    writer = SessionWriter(tmp_path / "s.jsonl", session_header(scene.ROOMY, policy, scene.FACTS))
    await agent(policy, recorder=writer).run()
    writer.append("verdict", {"score": 1.0})
    writer.close()
    session = read_session(tmp_path / "s.jsonl")
    assert session.entries[-1].data == {"score": 1.0}
    assert await replay(session, make_sandbox()) is None


async def test_another_tool_result_is_named(record: Any, make_sandbox: Any, scene: Any) -> None:
    session = await record(ScriptedPolicy(script(scene, summary=False)), scene.ROOMY, None)
    other = {**scene.FILES, "main.py": "import shop\n"}
    difference = await replay(session, make_sandbox(other))
    assert difference is not None and (difference.entry, difference.what) == (2, "text")
    assert "main.py:1 from shop import total" in str(difference)


async def test_another_prompt_of_a_token_session_is_named_with_its_position(
    record: Any, make_sandbox: Any, renderer: NanoRenderer, scene: Any
) -> None:
    session = await record(scene.token_policy(renderer, script(scene, summary=False)), scene.ROOMY, renderer)
    changed = replace(session.header, facts={**session.header.facts, "instruction": "fix totals"})
    difference = await replay(Session(changed, session.entries), make_sandbox(), renderer=renderer)
    assert difference is not None and difference.entry == 0


async def test_another_harness_is_refused_before_running(
    record: Any, make_sandbox: Any, renderer: NanoRenderer, scene: Any
) -> None:
    session = await record(ScriptedPolicy(script(scene, summary=False)), scene.ROOMY, renderer)
    tokenizer = byte_tokenizer()
    tokenizer.add_tokens(["shop"])
    difference = await replay(session, make_sandbox(), renderer=NanoRenderer(tokenizer))
    assert difference is not None and difference.what == "harness hash"


async def test_a_shorter_replay_is_a_difference(record: Any, scene: Any) -> None:
    session = await record(ScriptedPolicy(script(scene, summary=False)), scene.ROOMY, None)
    shorter = Session(session.header, session.entries[:-1])
    n = len(session.entries)
    assert compare(session, shorter) == ReplayDifference(n - 1, "number of entries", n, n - 1)
    assert compare(session, session) is None


async def test_a_prompt_that_left_the_recording_stops_the_replay(
    record: Any, make_sandbox: Any, renderer: NanoRenderer, scene: Any
) -> None:
    """The instruction is the same but a tool answers in other words: the first difference is that answer."""
    session = await record(scene.token_policy(renderer, script(scene, summary=False)), scene.ROOMY, renderer)
    difference = await replay(session, make_sandbox({"shop.py": scene.FILES["shop.py"]}), renderer=renderer)
    assert difference is not None and (difference.entry, difference.what) == (2, "text")
