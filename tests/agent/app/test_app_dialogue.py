"""A session whose endpoint refuses it can be summed up and goes on, also when its agent has ended."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from etude.agent.app.errors import BadUse
from etude.agent.app.events import Event, Events
from etude.agent.app.extensions import Offers
from etude.agent.app.interactive_session import Dialogue
from etude.agent.app.model import Choice, Model
from etude.agent.app.runtime import Desk
from etude.agent.app.workspace_access import Place
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


def dialogue(folder: Path, policy: ScriptedPolicy, told: list[Event]) -> tuple[Dialogue, list[BaseException]]:
    failed: list[BaseException] = []
    model = Model(policy, None, SETTINGS, lambda: None)
    desk = Desk(Choice("http://127.0.0.1:9/v1"), model, Place.at(folder, "none", False), LocalFolder(folder))

    async def opening() -> Offers:
        return Offers(lambda line: None)

    made = Dialogue(
        desk, opening(), Approver("never"), lambda settings: Events(preset_of(settings), told.append), failed.append
    )
    return made, failed


async def idle(made: Dialogue) -> None:
    async with asyncio.timeout(10):
        while not made.idle:
            await asyncio.sleep(0.005)


async def test_compact_takes_up_a_session_whose_agent_a_refusal_ended(shop: Path) -> None:
    told: list[Event] = []
    made, failed = dialogue(shop, Poisoned(lambda request: Message("assistant", "fine")), told)
    made.say("hello")
    await idle(made)
    made.say("poison")
    await idle(made)
    assert isinstance(failed[-1], PolicyError)
    made.compact("")
    await idle(made)
    made.say("and now?")
    await idle(made)
    await made.leave()
    assert made.file is not None
    session = read_session(made.file)
    assert [entry.data["message"]["text"] for entry in session.of("completion")] == ["fine", "fine"]
    assert len(session.of("summary")) == 1 and told[-1]["type"] == "turn.completed"


async def test_there_is_nothing_to_sum_up_before_the_first_words(shop: Path) -> None:
    made, _ = dialogue(shop, Poisoned(lambda request: Message("assistant", "fine")), [])
    with pytest.raises(BadUse, match="nothing to sum up"):
        made.compact("")
    await made.leave()
