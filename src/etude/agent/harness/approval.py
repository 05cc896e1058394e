"""Approval of tool calls. The sandbox decides what a command *can* do, the approval policy what it *may* do without a question.

    never      no questions (rollouts, bench, a sandbox that holds nothing of value)
    commands   reading and editing run; commands and the network need approval
    writes     reading runs; everything else needs approval
    all        every call needs approval

An answer may be remembered for the session as a rule: a tool, or a tool with the first words of its command. Rules that allow never
reach a command in which a shell could hide a second one (`;`, `&&`, `|`, backticks, `$(`, redirections, new lines).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Literal

from etude.core.trace.message import ToolCall

Effect = Literal["read", "write", "execute", "network"]
ApprovalPolicy = Literal["never", "commands", "writes", "all"]
Answer = Literal["once", "session", "deny"]

_ASKED: dict[ApprovalPolicy, frozenset[Effect]] = {
    "never": frozenset(),
    "commands": frozenset({"execute", "network"}),
    "writes": frozenset({"write", "execute", "network"}),
    "all": frozenset({"read", "write", "execute", "network"}),
}
_COMPOUND = re.compile(r"[;&|`<>\n]|\$\(")
_REMEMBERED_WORDS = 2  # `git status`, `npm test`: the program and its subcommand


@dataclass(frozen=True)
class ApprovalDecision:
    """Whether a call may run. `reason` is the user's reason, which the model reads. `asked`: the user was asked."""

    allowed: bool
    reason: str = ""
    asked: bool = False
    remembered: bool = False  # similar calls will run without a question


@dataclass(frozen=True)
class ApprovalAnswer:
    """The user's answer to an approval question."""

    answer: Answer
    reason: str = ""


# The effect of a tool, by implementation. A tool that is not listed executes something.
_EFFECTS: dict[str, Effect] = {
    **dict.fromkeys(("read", "list", "glob", "grep", "codebase_search", "todo", "todo_write", "done", "job_output"), "read"),
    **dict.fromkeys(("write", "edit", "multi_edit", "apply_patch", "delete"), "write"),
    **dict.fromkeys(("web_search", "web_fetch"), "network"),
}  # fmt: skip


def effect_of(does: str) -> Effect:
    """The effect of a tool with this implementation."""
    return _EFFECTS.get(does, "execute")


AskUser = Callable[[ToolCall, Effect], Awaitable[ApprovalAnswer]]


@dataclass
class Approver:
    """The approvals of one session. `ask` asks the user. Without it, calls that need approval are refused."""

    policy: ApprovalPolicy = "never"
    ask: AskUser | None = None
    rules: set[tuple[str, ...]] = field(default_factory=set)

    async def rule(self, call: ToolCall, effect: Effect) -> ApprovalDecision:
        """Decide whether a call may run, with one question if the policy requires it."""
        if effect not in _ASKED[self.policy] or rule_for(call, effect) in self.rules:
            return ApprovalDecision(True)
        if self.ask is None:
            return ApprovalDecision(False, f"approval policy {self.policy!r} asks for it and no person can answer")
        asked = await self.ask(call, effect)
        rule = rule_for(call, effect) if asked.answer == "session" else None
        if rule is not None:
            self.rules.add(rule)
        return ApprovalDecision(asked.answer != "deny", asked.reason, asked=True, remembered=rule is not None)


def rule_for(call: ToolCall, effect: Effect) -> tuple[str, ...] | None:
    """The rule that an answer for the whole session would add; None if the call needs a question each time."""
    if effect != "execute" or call.name.startswith(
        "mcp__"
    ):  # a server's tool runs no shell of ours, whatever its arguments
        return (call.name,)
    command = call.arguments.get("command")
    if not isinstance(command, str) or _COMPOUND.search(command):
        return None
    try:
        words = shlex.split(command)
    except ValueError:  # an open quote: the shell will refuse it as well
        return None
    return (call.name, *words[:_REMEMBERED_WORDS]) if words else None
