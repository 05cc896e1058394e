"""Asks the person at the editor whether a call may run."""

from __future__ import annotations

from acp import RequestError
from acp.interfaces import Client
from acp.schema import AllowedOutcome, PermissionOption, SessionMode, SessionModeState, ToolCallUpdate

from etude.agent.acp.updates import Updates
from etude.agent.harness.approval import ApprovalAnswer, ApprovalPolicy, Effect, rule_for
from etude.agent.harness.mcp.server import McpServer
from etude.core.trace.message import ToolCall

_MODES: dict[ApprovalPolicy, tuple[str, str]] = {
    "never": ("Ask nothing", "every call runs unasked"),
    "commands": ("Ask for commands", "reading and editing run, commands and the network are asked for"),
    "writes": ("Ask for changes", "reading runs, the rest is asked for"),
    "all": ("Ask for everything", "every call is asked for"),
}


_NO = PermissionOption(option_id="deny", name="Don't allow", kind="reject_once")


def is_mode(name: str) -> bool:
    return name in _MODES


def modes(current: ApprovalPolicy) -> SessionModeState:
    """The approval policies as the protocol's modes."""
    known = [SessionMode(id=policy, name=name, description=words) for policy, (name, words) in _MODES.items()]
    return SessionModeState(current_mode_id=current, available_modes=known)


async def ask(client: Client, session_id: str, updates: Updates, call: ToolCall, effect: Effect) -> ApprovalAnswer:
    """A dialog that is closed is a no, and so is an editor that can't ask."""
    options = [PermissionOption(option_id="once", name="Allow", kind="allow_once")]
    if (rule := rule_for(call, effect)) is not None:
        options.append(
            PermissionOption(option_id="session", name=f"Allow {' '.join(rule)} from now on", kind="allow_always")
        )
    options.append(_NO)
    update = ToolCallUpdate(tool_call_id=call.id, status="pending", **updates.call(call))
    try:
        outcome = (await client.request_permission(session_id=session_id, tool_call=update, options=options)).outcome
    except RequestError as error:
        return ApprovalAnswer("deny", f"the editor could not ask: {error}")
    if not isinstance(outcome, AllowedOutcome):
        return ApprovalAnswer("deny", "the question was closed without an answer")
    if outcome.option_id == "session" and rule is not None:
        return ApprovalAnswer("session")
    return ApprovalAnswer("once") if outcome.option_id == "once" else ApprovalAnswer("deny")


async def approve_server(client: Client, session_id: str, server: McpServer) -> bool:
    """Whether a project's MCP server may start; remembered by the harness."""
    title = f"Start the MCP server {server.name} of {server.source}: {server.shown}"
    update = ToolCallUpdate(tool_call_id=f"mcp-{server.name}", title=title, kind="execute", status="pending")
    options = [PermissionOption(option_id="always", name="Allow in this project", kind="allow_always"), _NO]
    try:
        outcome = (await client.request_permission(session_id=session_id, tool_call=update, options=options)).outcome
    except RequestError:
        return False  # the session then says that it was not approved
    return isinstance(outcome, AllowedOutcome) and outcome.option_id == "always"
