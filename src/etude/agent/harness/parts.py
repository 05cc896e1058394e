"""What a session is made of, beside its settings and its policy: `build_agent` collects it, `Agent` uses it."""

from __future__ import annotations

from dataclasses import dataclass

from etude.agent.chat.renderer import Renderer
from etude.agent.harness.approval import Approver
from etude.agent.harness.edits.edit_log import EditLog
from etude.agent.harness.inbox import Inbox
from etude.agent.harness.services import Services
from etude.agent.harness.settings import HarnessSettings
from etude.agent.harness.task_facts import TaskFacts
from etude.agent.harness.watcher import AgentObserver, NullObserver
from etude.agent.workspace.workspace import Journal
from etude.core.trace.session import Recorder, Session
from etude.sandbox.protocol import Operations


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
    watcher: AgentObserver
    resumed: Session | None

    @property
    def unwatched(self) -> bool:
        """Nobody wants turns in pieces."""
        return isinstance(self.watcher, NullObserver)

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
