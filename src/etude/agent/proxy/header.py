"""The first line of a captured session: the agent, its system prompt and its tools."""

from __future__ import annotations

import hashlib
import json
import time
from typing import Any

from etude.agent.chat.renderer import Renderer
from etude.agent.policy.protocol import Policy, served_chat_of
from etude.agent.proxy.ask import Ask
from etude.core.trace.entry import SessionHeader

# Part of every captured session's harness hash: raise it when what a policy sees of the same request changes.
VERSION = 1


def capture_header(
    session_id: str, task_id: str, ask: Ask, policy: Policy, renderer: Renderer | None, source: dict[str, str]
) -> SessionHeader:
    """Made from the first request. The harness is the agent's system prompt and tools: two sessions with the same hash saw the
    same ones. `source` says where the request came from: the format, the agent's own name for itself."""
    known: dict[str, Any] = {
        "capture": VERSION,
        "chat": renderer.fingerprint if renderer else "",
        "system": [message.text for message in ask.messages if message.role == "system"],
        "tools": list(ask.tools),
    }
    served = served_chat_of(policy)
    request = next((message.text for message in ask.messages if message.role == "user"), "")
    return SessionHeader(
        session_id=session_id,
        task_id=task_id,
        harness=hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()[:16],
        harness_facts=known,
        effort=ask.effort or "medium",
        policy=policy.name,
        takes_tokens=policy.takes_tokens,
        created_unix_s=round(time.time(), 3),
        facts={"instruction": request} | ({"served_chat": served} if served and renderer is None else {}),
        recipe={"capture": {**source, "model": ask.model, "ignored": list(ask.ignored)}},
    )
