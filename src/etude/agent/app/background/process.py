"""The process of one agent in the background: `python -m etude.agent.app.background.process ID REQUEST`, started by `start.spawn`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from etude.agent.app.background.record import Berth, berth
from etude.agent.app.chat_session import Ask
from etude.agent.app.errors import FaceError
from etude.agent.app.extensions import Wanted
from etude.agent.app.headless import Job, json_lines, run_headless
from etude.agent.app.model import Choice
from etude.agent.app.workspace_access import Place


def main(name: str, request: str) -> int:
    """Its exit status is kept in `status.json` too."""
    own = berth(name)
    with open(own.events, "a", encoding="utf-8") as file:
        tell = json_lines(file)
        try:
            code = asyncio.run(run_headless(_job(own, request), tell))
        except FaceError as error:
            tell({"type": "error", "message": str(error)})
            code = error.code
        except asyncio.CancelledError:
            code = 130
    own.ended(code)
    return code


def _job(own: Berth, request: str) -> Job:
    """A session that began already is gone on with."""
    begun = own.session if own.session.exists() else None
    ask = Ask(request, tuple(own.test_command), own.session_id)
    place = Place.at(Path(own.folder), own.walls, own.network)
    wanted = Wanted(**own.wanted)
    return Job(ask, Choice.from_json(own.choice), place, own.approval, wanted, begun, own.home)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
