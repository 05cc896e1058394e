"""How an endpoint captures."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from etude.agent.chat.renderer import Effort


@dataclass(frozen=True)
class CaptureSettings:
    """`allowed` names request fields that are let through although they can't be honoured: the operator's own risk."""

    sessions: Path  # the folder that the sessions are written to
    max_tokens: int = 4096  # of an answer, where the agent names no limit
    context_tokens: int | None = None  # prompt and answer together; None: the policy says so itself
    # SDKs try again after 0.5, 1 and 2 s, give or take a half: a sampling whose client left waits for the first two.
    grace_s: float = 3.0
    allowed: frozenset[str] = frozenset()
    effort: Effort | None = None  # where the agent names none
