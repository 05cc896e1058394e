"""What a session is made of, beside its settings and its policy: `build_agent` collects it, `Agent` uses it."""

from __future__ import annotations

from dataclasses import dataclass

from etude.chat.renderer import Renderer
from etude.harness.approval import Approver
from etude.harness.edits.edit_log import EditLog
from etude.harness.inbox import Inbox
from etude.harness.services import Services
from etude.harness.settings import HarnessSettings
from etude.harness.task_facts import TaskFacts
from etude.harness.watcher import Nobody, Watcher
from etude.sandbox.protocol import Operations
from etude.trace.session import Recorder, Session
from etude.workspace.workspace import Journal


@dataclass(frozen=True)
class Parts:
    """All that a session is given beside its settings and its policy."""

    operations: Operations
    facts: TaskFacts
    renderer: Renderer | None
    recorder: Recorder
    services: Services
    told: Journal | None
    inbox: Inbox
    approver: Approver
    watcher: Watcher
    resumed: Session | None

    @property
    def unwatched(self) -> bool:
        """Nobody wants turns in pieces."""
        return isinstance(self.watcher, Nobody)

    def journal(self, edits: EditLog) -> Journal:
        """The edit log's, and the caller's if there is one."""
        told = self.told
        if told is None:
            return edits

        def both(path: str, before: bytes | None, after: bytes | None) -> None:
            edits(path, before, after)
            told(path, before, after)

        return both


def fitted(renderer: Renderer, settings: HarnessSettings) -> Renderer:
    """The model's renderer as a session with these settings uses it."""
    return renderer.at_effort(settings.effort).keeping(settings.thinking)
