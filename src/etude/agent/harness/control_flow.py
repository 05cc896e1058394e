"""Control flow of the agent's loop, as a small family of exceptions: a step either returns or ends the request."""

from __future__ import annotations

from typing import Literal

from etude.core.trace.message import ToolCall

# done: the tool was called. message: a turn without calls. stopped: by the user. max_*: a limit. refused: the policy rejects the request.
# no_answer: two turns in a row were empty, filtered or ended by the provider's error, or three were cut off without a call.
EndReason = Literal["done", "message", "stopped", "max_turns", "max_tokens", "refused", "no_answer"]


class AgentControlFlow(Exception):
    """Base: never an error, never leaves the agent."""


class WindowOverflow(AgentControlFlow):
    """The conversation is too long for the model's window. The session summarizes it and continues."""


class RequestEnd(AgentControlFlow):
    """The end of a request, answered or not. `unanswered` are the calls of the last turn without a result: `done` and any after it."""

    def __init__(self, reason: EndReason, message: str = "", unanswered: tuple[ToolCall, ...] = ()) -> None:
        super().__init__(reason)
        self.reason: EndReason = reason
        self.message = message
        self.unanswered = unanswered
