"""An agent's dependencies besides its settings and its policy. `build_agent` collects them, `Agent` uses them."""

from __future__ import annotations

from dataclasses import dataclass

from etude.agent.chat.renderer import Renderer
from etude.agent.harness.approval import Approver
from etude.agent.harness.edits.edit_log import EditLog
from etude.agent.harness.inbox import Inbox
from etude.agent.harness.observer import AgentObserver, NullObserver
from etude.agent.harness.services import AgentServices
from etude.agent.harness.settings import HarnessSettings
from etude.agent.harness.task_facts import TaskFacts
from etude.agent.workspace.workspace import Journal
from etude.core.trace.session import Recorder, Session
from etude.sandbox.protocol import Operations


@dataclass(frozen=True)
class AgentDependencies:
    """Everything that a session gets besides its settings and its policy. `user_journal` is the caller's journal."""

    operations: Operations
    facts: TaskFacts
    renderer: Renderer | None
    recorder: Recorder
    services: AgentServices
    user_journal: Journal | None
    inbox: Inbox
    approver: Approver
    watcher: AgentObserver
    resumed: Session | None

    @property
    def unwatched(self) -> bool:
        """Whether no observer wants streamed turns."""
        return isinstance(self.watcher, NullObserver)

    def journal(self, edits: EditLog) -> Journal:
        """A journal that writes to the edit log, and to the caller's journal if there is one."""
        user_journal = self.user_journal
        if user_journal is None:
            return edits

        def both(path: str, before: bytes | None, after: bytes | None) -> None:
            edits(path, before, after)
            user_journal(path, before, after)

        return both


def renderer_for(renderer: Renderer, settings: HarnessSettings) -> Renderer:
    """The model's renderer, adapted to a session's settings."""
    return renderer.at_effort(settings.effort).keeping(settings.thinking)
