"""The server in a process of its own, with a policy whose program is the prompt: a JSON list of turns.

{"say": TEXT} | {"think": TEXT, "say": TEXT} | {"call": [NAME, ARGUMENTS]} | {"wait": SECONDS} | {"break": MESSAGE}

python acp_agent.py APPROVAL WALLS
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import cast

from etude.agent.acp.conversation import EditorSessionOptions
from etude.agent.acp.server import serve
from etude.agent.app.extensions import ExtensionOptions
from etude.agent.app.model import AgentModel, ModelChoice
from etude.agent.app.workspace_access import SandboxMode
from etude.agent.harness.approval import ApprovalPolicy
from etude.agent.harness.settings import HarnessSettings
from etude.agent.policy.protocol import PolicyError, Request
from etude.core.trace.completion import Completion
from etude.core.trace.message import Message, ToolCall


class ProgramPolicy:
    name = "program"
    takes_tokens = False

    async def complete(self, request: Request) -> Completion:
        asked = max(i for i, message in enumerate(request.messages) if message.role == "user")
        text = request.messages[asked].text
        if not text.startswith("["):
            return Completion(message=Message("assistant", f"heard {text!r} at effort {request.effort}"))
        turn = sum(message.role == "assistant" for message in request.messages[asked:])
        step = json.loads(text)[turn]
        await asyncio.sleep(step.get("wait", 0))
        if "break" in step:
            raise PolicyError(step["break"])
        said, thought = step.get("say", ""), step.get("think", "")
        if request.on_delta is not None and "call" not in step:
            for part, whole in (("thinking", thought), ("text", said)):
                for piece in (whole[:3], whole[3:]):
                    request.on_delta(part, piece)  # pyright: ignore[reportArgumentType]
        calls = (ToolCall(f"call-{asked}-{turn}", *step["call"]),) if "call" in step else ()
        return Completion(message=Message("assistant", said, thinking=thought, calls=calls))

    async def release(self, session_id: str) -> None:
        """Keeps nothing."""


if __name__ == "__main__":
    settings = HarnessSettings.full(preset="search_replace", max_turns=20)
    model = AgentModel(ProgramPolicy(), None, settings, lambda: None)

    async def opened() -> AgentModel:
        return model

    approval, walls = cast(ApprovalPolicy, sys.argv[1]), cast(SandboxMode, sys.argv[2])
    setup = EditorSessionOptions(
        ModelChoice("http://127.0.0.1:9/v1"), opened, walls, False, approval, ExtensionOptions(index=True, mcp=True)
    )
    asyncio.run(serve(setup))
