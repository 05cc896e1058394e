"""The process of one agent in the background: `python -m etude.agent.app.background.process ID REQUEST`, started by `start.spawn`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from etude.agent.app.background.record import BackgroundAgent, find_agent
from etude.agent.app.chat_session import SessionStart
from etude.agent.app.errors import AppError
from etude.agent.app.extensions import ExtensionOptions
from etude.agent.app.headless import AgentJob, json_lines, run_headless
from etude.agent.app.model import ModelChoice
from etude.agent.app.workspace_access import WorkspaceAccess


def main(name: str, request: str) -> int:
    """Run the agent, record its exit status in `status.json`, and return it."""
    agent = find_agent(name)
    with open(agent.events, "a", encoding="utf-8") as file:
        tell = json_lines(file)
        try:
            code = asyncio.run(run_headless(_job(agent, request), tell))
        except AppError as error:
            tell({"type": "error", "message": str(error)})
            code = error.code
        except asyncio.CancelledError:
            code = 130
    agent.record_end(code)
    return code


def _job(agent: BackgroundAgent, request: str) -> AgentJob:
    """The job of the agent. A session that exists already is resumed."""
    begun = agent.session if agent.session.exists() else None
    start = SessionStart(request, tuple(agent.test_command), agent.session_id)
    place = WorkspaceAccess.validated(Path(agent.folder), agent.walls, agent.network)
    wanted = ExtensionOptions(**agent.wanted)
    return AgentJob(start, ModelChoice.from_json(agent.choice), place, agent.approval, wanted, begun, agent.home)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
