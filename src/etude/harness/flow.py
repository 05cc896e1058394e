"""Control flow of the agent's loop, as a small family of exceptions: a step either returns, repairs, or ends the session."""

from __future__ import annotations

from typing import Literal

# done: the tool was called. message: a turn without calls. max_*: a limit. refused: the policy can't take the request.
EndReason = Literal["done", "message", "max_turns", "max_tokens", "refused"]


class Flow(Exception):
    """Base: never an error, never leaves the agent."""


class Malformed(Flow):
    """The turn can't be carried out. The policy is told in one tool message and goes on; evidence, never dropped."""


class Ended(Flow):
    """The session is over."""

    def __init__(self, reason: EndReason, message: str = "") -> None:
        super().__init__(reason)
        self.reason: EndReason = reason
        self.message = message
