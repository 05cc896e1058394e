"""Files that can't be had: one line that says which, why, and what to do; nothing is changed, and the session goes on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from etude.agent.harness.agent import Agent
from etude.agent.harness.settings import HarnessSettings
from etude.agent.workspace.local_folder import LocalFolder
from etude.core.trace.message import Message
from etude.sandbox.errors import UserError

SETTINGS = HarnessSettings.full(preset="search_replace", tool_timeout_s=1.0)
CALLS = [
    ("read_file", {"target_file": "closed.py"}),
    ("search_replace", {"file_path": "closed.py", "old_string": "a", "new_string": "b"}),
    ("write", {"file_path": "closed.py", "contents": "b"}),
    ("delete_file", {"target_file": "closed.py"}),
]


class Closed(LocalFolder):
    """A folder in which one file has a mode against its reader, who may be root here."""

    def __init__(self, root: Path, error: type[Exception]) -> None:
        super().__init__(root)
        self._error = error

    async def read(self, path: str, **options: Any) -> bytes:
        if path == "closed.py":
            raise self._error(f"[Errno 13] Permission denied: {path!r}")
        return await super().read(path, **options)


@pytest.mark.parametrize("error", [PermissionError, UserError])
async def test_an_unreadable_file_is_not_said_to_be_missing(
    agent: Callable[..., Agent], scene: Any, tmp_path: Path, error: type[Exception]
) -> None:
    (tmp_path / "closed.py").write_text("a = 1\n")
    script = [*(scene.turn(call) for call in CALLS), Message("assistant", "it is closed")]
    outcome = await agent(script, SETTINGS, sandbox=Closed(tmp_path, error)).run()
    texts = {entry.data["text"] for entry in outcome.session.of("tool_result")}
    assert texts == {"closed.py is there and can't be read; its mode forbids it (chmod u+r)"}
    assert outcome.counters["failed_calls"] == len(CALLS) and (tmp_path / "closed.py").read_text() == "a = 1\n"


async def test_a_search_that_hangs_is_reported_and_the_session_goes_on(
    agent: Callable[..., Agent], scene: Any, tmp_path: Path
) -> None:
    (tmp_path / "a.py").write_text("a = 1\n")

    class Hanging(LocalFolder):
        async def run(self, argv: Any, **options: Any) -> Any:
            search = not isinstance(argv, str) and argv[0] in ("rg", "python") and "--version" not in argv
            return await super().run(["sleep", "60"] if search else argv, **options)

    script = [scene.turn(("grep", {"pattern": "a"})), scene.turn(("read_file", {"target_file": "a.py"})), Message("assistant", "ok")]  # fmt: skip
    outcome = await agent(script, SETTINGS, sandbox=Hanging(tmp_path)).run()
    first, second = [entry.data["text"] for entry in outcome.session.of("tool_result")]
    assert first == "the search timed out; use a simpler pattern or a folder" and second.startswith("a = 1")
    assert outcome.reason == "message" and outcome.seconds["tools"] < 15
