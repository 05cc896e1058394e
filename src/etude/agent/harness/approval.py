"""Who may let a call run. Separate from the sandbox: the sandbox decides what a command *can* do, this what it *may* do unasked.

    never      nothing is asked (rollouts, bench, a sandbox that holds nothing of value)
    commands   reading and editing run, commands and the network are asked for
    writes     reading runs, the rest is asked for
    all        every call is asked for

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
_REMEMBERED_WORDS = 2  # `git status`, `npm test`: the program and what it shall do


@dataclass(frozen=True)
class Ruling:
    """Whether a call may run; `reason` is what the person said, told to the model. `asked` tells that somebody was."""

    allowed: bool
    reason: str = ""
    asked: bool = False
    remembered: bool = False  # and calls like it will run unasked


@dataclass(frozen=True)
class Asked:
    """What a person answered."""

    answer: Answer
    reason: str = ""


# What a tool does to the world, by implementation; one that is not named here runs something.
_EFFECTS: dict[str, Effect] = {
    **dict.fromkeys(("read", "list", "glob", "grep", "codebase_search", "todo", "todo_write", "done", "job_output"), "read"),
    **dict.fromkeys(("write", "edit", "multi_edit", "apply_patch", "delete"), "write"),
    **dict.fromkeys(("web_search", "web_fetch"), "network"),
}  # fmt: skip


def effect_of(does: str) -> Effect:
    """The effect of a tool that does this."""
    return _EFFECTS.get(does, "execute")


Ask = Callable[[ToolCall, Effect], Awaitable[Asked]]


@dataclass
class Approver:
    """One session's. `ask` is how a person is asked; without it whatever would be asked is refused, and says so."""

    policy: ApprovalPolicy = "never"
    ask: Ask | None = None
    rules: set[tuple[str, ...]] = field(default_factory=set)

    async def rule(self, call: ToolCall, effect: Effect) -> Ruling:
        """May this call run? Asks at most once."""
        if effect not in _ASKED[self.policy] or rule_for(call, effect) in self.rules:
            return Ruling(True)
        if self.ask is None:
            return Ruling(False, f"approval policy {self.policy!r} asks for it and nobody is there to ask")
        asked = await self.ask(call, effect)
        rule = rule_for(call, effect) if asked.answer == "session" else None
        if rule is not None:
            self.rules.add(rule)
        return Ruling(asked.answer != "deny", asked.reason, asked=True, remembered=rule is not None)


def rule_for(call: ToolCall, effect: Effect) -> tuple[str, ...] | None:
    """The rule that an answer for the session would make; None where it must be asked for each time."""
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
