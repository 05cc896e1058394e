"""Sessions of an earlier install, said again: the same answers to the same questions, without a model."""

from __future__ import annotations

from pathlib import Path

from etude.agent.policy.protocol import PolicyError, Request
from etude.agent.policy.replay import ReplayPolicy
from etude.core.trace.completion import Completion
from etude.core.trace.reader import read_session


class RecordedPolicy:
    """A folder of sessions, as `etude tasks install --sessions DIR` writes them: by the session's id."""

    takes_tokens = False

    def __init__(self, folder: Path) -> None:
        self.folder, self.name = folder, folder.resolve().name
        self._open: dict[str, ReplayPolicy] = {}

    async def complete(self, request: Request) -> Completion:
        """Raises PolicyError, ours where the folder has no such session or holds one of tokens."""
        if request.session_id not in self._open:
            path = self.folder / f"{request.session_id}.jsonl"
            if not path.is_file():
                there = ", ".join(sorted(file.stem for file in self.folder.glob("*.jsonl"))) or "none"
                raise PolicyError(f"{self.folder} has no session {request.session_id}; there are: {there}")
            replay = ReplayPolicy(read_session(path))
            if replay.takes_tokens:
                raise PolicyError(f"{path} holds tokens of a checkpoint: replay it with `etude session replay`")
            self._open[request.session_id] = replay
        return await self._open[request.session_id].complete(request)

    async def release(self, session_id: str) -> None:
        self._open.pop(session_id, None)
