"""Codex CLI: `~/.codex/sessions/YYYY/MM/DD/rollout-<time>-<id>.jsonl`, lines `{timestamp, type, payload}`.

Written against codex-rs' own types (`protocol/src/models.rs`, `RolloutItem`) as published for versions 0.46 to 0.65: types
session_meta, turn_context, response_item, compacted, event_msg. Items that came with one answer (reasoning, message, calls)
become one completion. Events that repeat an item are dropped and counted.
"""

from __future__ import annotations

import json
import re
from typing import Any

from etude.agent.importers.draft import Row, SessionDraft, maybe, need, rest, unix_s
from etude.core.trace.message import Message, ToolCall

NAME = "codex"

_REPEATS = frozenset(("user_message", "agent_message", "agent_reasoning", "agent_reasoning_raw_content"))
# Items that `item_completed` tells again (0.169 writes both).
_ITEMS = frozenset(("UserMessage", "AgentMessage", "Reasoning", "CommandExecution"))
_EXITED = re.compile(r"^Process exited with code (-?\d+)$", re.MULTILINE)
_META = frozenset(("id", "timestamp", "cwd", "cli_version", "instructions", "base_instructions", "tools"))


def read(rows: list[tuple[str, Row]]) -> SessionDraft:
    """The session of a log's lines, each with its place. Raises ForeignError."""
    return _CodexReader().read(rows)


class _CodexReader:
    def __init__(self) -> None:
        self.draft = SessionDraft(NAME)
        self.draft.asides = ("<environment_context>", "<user_instructions>", "# AGENTS.md instructions")
        self._names: dict[str, str] = {}
        self._last: int | None = None  # the last entry of the conversation
        self._text: list[str] = []
        self._thinking: list[str] = []
        self._calls: list[ToolCall] = []
        self._problem: str | None = None
        self._raw: Row = {}

    def read(self, rows: list[tuple[str, Row]]) -> SessionDraft:
        for place, row in rows:
            kind, payload = need(row, "type", str, place), need(row, "payload", dict, place)
            self.draft.at(unix_s(row.get("timestamp"), place))
            if kind == "session_meta":
                self._meta(payload, place)
            elif kind == "turn_context":
                self._context(payload, row, place)
            elif kind == "response_item":
                self._item(payload, row, place)
            elif kind == "compacted":
                self._flush({}, place)
                self._last = self.draft.summary(
                    maybe(payload, "message", str, place), foreign=rest(payload, frozenset(("message",)))
                )
            elif kind == "event_msg":
                self._event(payload, row, place)
            else:
                self.draft.keep(row)
        self._flush({}, "the end")
        self.draft.rows = len(rows)
        return self.draft

    def _meta(self, payload: Row, place: str) -> None:
        draft = self.draft
        draft.session_id = draft.session_id or need(payload, "id", str, place)
        draft.agent_version = draft.agent_version or maybe(payload, "cli_version", str, place)
        draft.workspace = draft.workspace or maybe(payload, "cwd", str, place)
        draft.facts |= {"codex": kept} if (kept := rest(payload, _META)) else {}
        if system := payload.get("instructions") or payload.get("base_instructions"):
            text = system if isinstance(system, str) else need(system, "text", str, place)
            self._last = draft.message(Message("system", text), parent=self._last)

    def _context(self, payload: Row, row: Row, place: str) -> None:
        self.draft.policy = self.draft.policy or maybe(payload, "model", str, place)
        effort = payload.get("effort")
        if effort in ("low", "medium", "high"):
            if effort != self.draft.effort:
                self.draft.effort = effort
                self.draft.add("effort", {"effort": effort})
        elif effort is not None:
            self.draft.keep(row)  # an effort that we have no word for

    def _item(self, payload: Row, row: Row, place: str) -> None:
        kind = need(payload, "type", str, place)
        if kind == "message" and need(payload, "role", str, place) == "assistant":
            self._text.append(self._said(payload, place))
        elif kind == "message":
            self._flush({}, place)
            role = "user" if payload["role"] == "user" else "system"
            foreign = {} if payload["role"] in ("user", "system") else {"role": payload["role"]}
            self._last = self.draft.message(
                Message(role, self._said(payload, place)), parent=self._last, foreign=foreign
            )
        elif kind == "reasoning":
            self._reason(payload, place)
        elif kind in ("function_call", "custom_tool_call", "local_shell_call"):
            self._call(kind, payload, place)
        elif kind in ("function_call_output", "custom_tool_call_output"):
            self._flush({}, place)
            self._output(payload, place)
        else:
            self.draft.keep(row)

    def _said(self, payload: Row, place: str) -> str:
        parts = []
        for part in need(payload, "content", list, place):
            if need(part, "type", str, place) in ("input_text", "output_text", "text"):
                parts.append(need(part, "text", str, place))
            else:
                self.draft.drop(f"{part['type']} parts")
        return "\n".join(parts)

    def _reason(self, payload: Row, place: str) -> None:
        parts = [*maybe(payload, "content", list, place), *maybe(payload, "summary", list, place)]
        self._thinking += [need(part, "text", str, place) for part in parts]
        if payload.get("encrypted_content"):
            self.draft.drop("encrypted thinking")

    def _call(self, kind: str, payload: Row, place: str) -> None:
        call_id = need(payload, "call_id", str, place)
        if kind == "local_shell_call":
            name, arguments = "local_shell", dict(need(payload, "action", dict, place))
        elif kind == "custom_tool_call":
            name, arguments = need(payload, "name", str, place), {"input": need(payload, "input", str, place)}
        else:
            space = maybe(payload, "namespace", str, place)
            name = f"{space}__{need(payload, 'name', str, place)}" if space else need(payload, "name", str, place)
            arguments = self._arguments(need(payload, "arguments", str, place), call_id)
        self._names[call_id] = name
        self._calls.append(ToolCall(call_id, name, arguments))

    def _arguments(self, text: str, call_id: str) -> dict[str, Any]:
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            found = None
        if isinstance(found, dict):
            return found
        self._problem = f"the arguments of {call_id} are no JSON object"
        self._raw[call_id] = text
        return {}

    def _output(self, payload: Row, place: str) -> None:
        call_id = need(payload, "call_id", str, place)
        output = need(payload, "output", (str, list, dict), place)
        failed, foreign = False, {}
        if isinstance(output, dict):
            failed, text = output.get("success") is False, need(output, "content", str, place)
        elif isinstance(output, list):
            text = self._said({"content": output}, place)
        else:
            text, failed, foreign = _shell_output(output)
        data = {"call_id": call_id, "name": self._names.get(call_id, ""), "text": text, "failed": failed}
        self._last = self.draft.add("tool_result", data, parent=self._last, foreign=foreign)

    def _event(self, payload: Row, row: Row, place: str) -> None:
        kind = need(payload, "type", str, place)
        item = maybe(payload, "item", dict, place) if kind == "item_completed" else {}
        if kind in _REPEATS or item.get("type") in _ITEMS:
            self.draft.drop("events that repeat an item")
        elif kind == "token_count":
            self._flush(maybe(maybe(payload, "info", dict, place), "last_token_usage", dict, place), place)
        else:
            self.draft.keep(row)

    def _flush(self, usage: Row, place: str) -> None:
        """The answer so far becomes a completion."""
        if not (self._text or self._thinking or self._calls):
            return
        message = Message(
            "assistant", "\n\n".join(self._text), "\n\n".join(self._thinking), tuple(self._calls), problem=self._problem
        )
        spent = {
            "input_tokens": maybe(usage, "input_tokens", int, place),
            "cached_tokens": maybe(usage, "cached_input_tokens", int, place),
            "output_tokens": maybe(usage, "output_tokens", int, place),
            "seconds": 0.0,
        }
        data = {"message": message.to_json(), "finish": "stop", "usage": spent}
        foreign = {"arguments": self._raw} if self._raw else {}
        self._last = self.draft.add("completion", data, parent=self._last, foreign=foreign)
        self._text, self._thinking, self._calls, self._problem, self._raw = [], [], [], None, {}


def _shell_output(text: str) -> tuple[str, bool, Row]:
    """Text, failed and the rest of an output; a shell's is JSON with `output` and `metadata.exit_code`, or (0.169) text whose
    head says how the process ended."""
    if text.startswith("{"):
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            return text, False, {}
        if isinstance(found, dict) and isinstance(found.get("output"), str) and isinstance(found.get("metadata"), dict):
            return found["output"], found["metadata"].get("exit_code", 0) != 0, {"metadata": found["metadata"]}
    head, found, _ = text.partition("\nOutput:\n")
    exited = _EXITED.search(head) if found else None
    return text, exited is not None and exited[1] != "0", {}
