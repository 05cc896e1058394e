"""A participant of a benchmark: a policy at an effort, with all that its attempts depend on. It is opened only when it runs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Literal

from etude.evaluate.bench.runs.folder import key_of
from etude.agent.chat.renderer import Renderer
from etude.agent.harness.settings import HarnessSettings
from etude.agent.policy.protocol import Policy
from etude.rollout.attempt import OtherAgent, Script
from etude.core.trace.entry import Effort

# Controls are in every table: its readers must see that the reference gets all, and that idling and cheating get nothing.
Kind = Literal["control", "checkpoint", "endpoint", "replay"]


@dataclass(frozen=True)
class ParticipantPolicy:
    """A participant's policy, ready to answer. `engine`: it computes in this process, so its core-seconds are measured. `agent`: the agent
    that uses it, if not our harness."""

    policy: Policy | Script
    renderer: Renderer | None = None
    engine: bool = False
    agent: OtherAgent | None = None


@dataclass(frozen=True)
class Participant:
    """`open` yields the policy for as long as it is needed; `facts`: the other things its attempts depend on (address, checkpoint)."""

    name: str
    effort: Effort
    kind: Kind
    harness: HarnessSettings
    harness_hash: str
    open: Callable[[], AbstractAsyncContextManager[ParticipantPolicy]]
    model: str = ""  # its name in price lists; "": it costs nothing
    facts: dict[str, Any] | None = None
    agent: str = ""  # the name of another agent than our harness

    @property
    def key(self) -> str:
        return key_of(self.name, self.effort, self.agent)

    @property
    def competes(self) -> bool:
        return self.kind != "control"
