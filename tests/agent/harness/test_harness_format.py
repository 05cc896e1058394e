"""What the agent records keeps to the published format, however a session goes."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable

import pytest

from etude.agent.harness.header import session_header
from etude.agent.harness.presets.preset import hash_of
from etude.agent.harness.settings import HarnessSettings
from etude.agent.policy.protocol import PolicyError
from etude.agent.policy.scripted import ScriptedPolicy
from etude.core.trace.reader import read_session
from etude.core.trace.schema import check_file
from etude.core.trace.writer import SessionWriter


def recorded(path: Path, settings: HarnessSettings, policy: Any, facts: Any, renderer: Any) -> SessionWriter:
    header = session_header(settings, policy, facts, renderer=renderer, session_id="s")
    return SessionWriter(path, header, every="line")


@pytest.mark.parametrize(("with_tokens", "trigger"), [(False, 0), (True, 0), (True, 150)])
async def test_a_session_keeps_to_the_published_format(
    agent: Callable[..., Any], scene: Any, renderer: Any, tmp_path: Path, with_tokens: bool, trigger: int
) -> None:
    renderer = renderer if with_tokens else None
    settings = HarnessSettings(max_session_tokens=8000, max_tokens_per_turn=400, summary_trigger_tokens=trigger)
    policy = ScriptedPolicy([*scene.GOOD[:2], *([scene.turn(text="half done")] if trigger else []), *scene.GOOD[2:]])
    writer = recorded(tmp_path / "s.jsonl", settings, policy, scene.FACTS, renderer)
    await agent(policy, settings, renderer=renderer, recorder=writer).run()
    assert check_file(tmp_path / "s.jsonl") == []
    session = read_session(tmp_path / "s.jsonl")
    assert {"message", "completion", "tool_result", "counters", "end"} <= {entry.type for entry in session.entries}
    assert ("summary" in {entry.type for entry in session.entries}) == bool(trigger)
    assert hash_of(session.header.harness_facts) == session.header.harness, "the facts are what the hash is of"


async def test_malformed_turns_and_faults_keep_to_it_too(agent: Callable[..., Any], scene: Any, tmp_path: Path) -> None:
    def answer(request: Any) -> Any:
        raise PolicyError("the endpoint is gone", infra=True)

    policy = ScriptedPolicy([scene.turn(("nothing", {"x": 1})), scene.turn(("view", {"path": 3})), scene.done()])
    for name, one in (("a", policy), ("b", ScriptedPolicy(answer))):
        writer = recorded(tmp_path / f"{name}.jsonl", scene.ROOMY, one, scene.FACTS, None)
        try:
            await agent(one, recorder=writer).run()
        except PolicyError:
            assert name == "b"
        assert check_file(tmp_path / f"{name}.jsonl") == []
    assert [e.type for e in read_session(tmp_path / "b.jsonl").entries] == ["message", "fault"]
    [counters] = read_session(tmp_path / "a.jsonl").of("counters")
    assert counters.data["counters"]["malformed_calls"] == 2
