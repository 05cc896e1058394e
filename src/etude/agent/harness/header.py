"""The first line of a session file: its policy, its harness and its task."""

from __future__ import annotations

import time
from typing import Any

from etude.agent.chat.renderer import Renderer
from etude.agent.harness.dependencies import renderer_for
from etude.agent.harness.presets.preset import harness_facts, hash_of
from etude.agent.harness.services import AgentServices
from etude.agent.harness.settings import HarnessSettings
from etude.agent.harness.task_facts import TaskFacts
from etude.agent.policy.protocol import Policy, served_chat_of, window_of
from etude.core.trace.entry import SessionHeader
from etude.core.trace.unicode import whole


def session_header(
    settings: HarnessSettings,
    policy: Policy,
    facts: TaskFacts,
    *,
    renderer: Renderer | None = None,
    session_id: str | None = None,
    recipe: dict[str, Any] | None = None,
    services: AgentServices | None = None,
) -> SessionHeader:
    """The header with everything needed to attribute and replay the session. `services` are those of the agent."""
    chat = renderer_for(renderer, settings).fingerprint if renderer else ""
    window = window_of(policy) if renderer is None else None
    known = harness_facts(settings, chat, services.mcp if services else ())
    return SessionHeader(
        session_id=session_id or f"{facts.task_id}-{time.time_ns():x}",
        task_id=facts.task_id,
        harness=hash_of(known),
        harness_facts=known,
        effort=settings.effort,
        policy=policy.name,
        takes_tokens=policy.takes_tokens,
        created_unix_s=round(time.time(), 3),
        settings=settings.model_dump(mode="json"),
        facts=whole(facts.to_json())
        | ({} if window is None else {"window_tokens": window})
        | ({"served_chat": served} if (served := served_chat_of(policy)) and renderer is None else {}),
        recipe=recipe or {},
    )
