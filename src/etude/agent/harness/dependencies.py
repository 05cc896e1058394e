"""An agent's dependencies besides its settings and its policy. Callers of `build_agent` collect them, `Agent` uses them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

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
    """Everything that a session gets besides its settings and its policy."""

    operations: Operations  # a sandbox, or a `LocalFolder`
    facts: TaskFacts  # facts about the task; its instruction is the first request, or the next one of a resumed session
    renderer: Renderer | None = None  # a token policy needs one
    recorder: Recorder | None = None  # without one the session stays in memory
    seed: int | None = None  # of the first turn; each later turn adds one
    services: AgentServices = field(default_factory=AgentServices)  # tools outside the sandbox that settings switch on
    user_journal: Journal | None = None  # the caller's journal: gets every file change of a tool
    inbox: Inbox = field(default_factory=Inbox.closed_inbox)  # messages after the request; a closed one has none
    approver: Approver = field(default_factory=Approver)  # decides calls; the default asks no questions
    watcher: AgentObserver = field(default_factory=NullObserver)
    on_alive: Callable[[], None] | None = None  # as `Request.on_alive`
    resumed: Session | None = None  # the session to resume

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
