"""A session whose endpoint refuses it can be summed up and goes on, also when its agent has ended."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from etude.agent.app.errors import UsageError
from etude.agent.app.events import Event, EventStream
from etude.agent.app.extensions import Extensions
from etude.agent.app.interactive_session import InteractiveSession
from etude.agent.app.model import AgentModel, ModelChoice
from etude.agent.app.runtime import SessionRuntime
from etude.agent.app.workspace_access import WorkspaceAccess
from etude.agent.harness.approval import Approver
from etude.agent.harness.presets.preset import preset_of
from etude.agent.harness.settings import HarnessSettings
from etude.agent.policy.protocol import PolicyError, Request
from etude.agent.policy.scripted import ScriptedPolicy
from etude.agent.workspace.local_folder import LocalFolder
from etude.core.trace.message import Message
from etude.core.trace.reader import read_session

SETTINGS = HarnessSettings.full(preset="search_replace", lint_delta_s=0.0)


class Poisoned(ScriptedPolicy):
    """Refuses every conversation in which the poison is."""

    async def complete(self, request: Request) -> Any:
        if any("poison" in message.text for message in request.messages):
            raise PolicyError("HTTP 400: no", status=400)
        return await super().complete(request)


def dialogue(
    folder: Path, policy: ScriptedPolicy, events: list[Event]
) -> tuple[InteractiveSession, list[BaseException]]:
    failed: list[BaseException] = []
    model = AgentModel(policy, None, SETTINGS, lambda: None)
    runtime = SessionRuntime(
        ModelChoice("http://127.0.0.1:9/v1"),
        model,
        WorkspaceAccess.validated(folder, "none", False),
        LocalFolder(folder),
    )

    async def opening() -> Extensions:
        return Extensions(lambda line: None)

    made = InteractiveSession(
        runtime,
        opening(),
        Approver("never"),
        lambda settings: EventStream(preset_of(settings), events.append),
        failed.append,
    )
    return made, failed


async def idle(made: InteractiveSession) -> None:
    async with asyncio.timeout(10):
        while not made.is_idle:
            await asyncio.sleep(0.005)


async def test_compact_takes_up_a_session_whose_agent_a_refusal_ended(shop: Path) -> None:
    events: list[Event] = []
    made, failed = dialogue(shop, Poisoned(lambda request: Message("assistant", "fine")), events)
    made.send("hello")
    await idle(made)
    made.send("poison")
    await idle(made)
    assert isinstance(failed[-1], PolicyError)
    made.compact("")
    await idle(made)
    made.send("and now?")
    await idle(made)
    await made.shut_down()
    assert made.file is not None
    session = read_session(made.file)
    assert [entry.data["message"]["text"] for entry in session.of("completion")] == ["fine", "fine"]
    assert len(session.of("summary")) == 1 and events[-1]["type"] == "turn.completed"


async def test_there_is_nothing_to_sum_up_before_the_first_words(shop: Path) -> None:
    made, _ = dialogue(shop, Poisoned(lambda request: Message("assistant", "fine")), [])
    with pytest.raises(UsageError, match="nothing to sum up"):
        made.compact("")
    await made.shut_down()
