"""OpenHands: the events of a conversation, one JSON object each with its class in `kind`; a folder of `event-*.json`, a JSON
array or JSON lines.

Written against the event classes of the software agent SDK (`openhands.sdk.event`) as published in 2026: MessageEvent,
SystemPromptEvent, ActionEvent, ObservationEvent, AgentErrorEvent, UserRejectObservation, Condensation. Actions of one
answer (`llm_response_id`) become one completion. Events of the older server (`action`, `observation` keys) are refused.
"""

from __future__ import annotations

import json
from typing import Any

from etude.agent.importers.draft import ForeignError, Row, SessionDraft, maybe, need, rest, unix_s
from etude.core.trace.message import Message, Role, ToolCall

NAME = "openhands"

_EVENT = frozenset("kind id timestamp source parent_id".split())
_ACTION = _EVENT | frozenset(
    "thought reasoning_content thinking_blocks tool_name tool_call_id tool_call llm_response_id action".split()
)
_RESULT = _EVENT | frozenset("tool_name tool_call_id action_id observation error rejection_reason".split())


def read(rows: list[tuple[str, Row]]) -> SessionDraft:
    """The session of a log's events, each with its place. Raises ForeignError."""
    return _OpenHandsReader().read(rows)


class _OpenHandsReader:
    def __init__(self) -> None:
        self.draft = SessionDraft(NAME)
        self._last: int | None = None

    def read(self, rows: list[tuple[str, Row]]) -> SessionDraft:
        at = 0
        while at < len(rows):
            place, row = rows[at]
            if "kind" not in row and ("action" in row or "observation" in row):
                raise ForeignError(
                    f"{place}: an event of OpenHands' older server; only the SDK's (with `kind`) are read"
                )
            kind = need(row, "kind", str, place)
            self.draft.at(unix_s(row.get("timestamp"), place))
            if kind == "ActionEvent":
                at += self._actions(rows[at:])
                continue
            self._event(kind, row, place)
            at += 1
        self.draft.rows = len(rows)
        return self.draft

    def _event(self, kind: str, row: Row, place: str) -> None:
        if kind == "MessageEvent":
            self._message(row, place)
        elif kind == "SystemPromptEvent":
            self._system(row, place)
        elif kind in ("ObservationEvent", "AgentErrorEvent", "UserRejectObservation"):
            self._result(kind, row, place)
        elif kind == "Condensation":
            mapped = _EVENT | {"summary"}
            self._last = self.draft.summary(maybe(row, "summary", str, place), foreign=rest(row, mapped))
        elif kind == "CondensationSummaryEvent":
            self.draft.drop("repeated summaries")
        else:
            self.draft.keep(row)

    def _message(self, row: Row, place: str) -> None:
        message_row = need(row, "llm_message", dict, place)
        text = self._text(message_row.get("content") or [], place)
        foreign = rest(row, _EVENT | {"llm_message", "llm_response_id"})
        role = need(message_row, "role", str, place)
        if role == "assistant":
            message = Message("assistant", text, thinking=_thinking(message_row, place))
            data = {"message": message.to_json(), "finish": "stop"}
            self._last = self.draft.add("completion", data, parent=self._last, foreign=foreign)
        elif role in ("user", "system"):
            kind: Role = "user" if role == "user" else "system"
            self._last = self.draft.message(Message(kind, text), parent=self._last, foreign=foreign)
        else:
            raise ForeignError(f"{place}: a message of role {role!r}; known are user, system, assistant")

    def _system(self, row: Row, place: str) -> None:
        texts = [need(need(row, "system_prompt", dict, place), "text", str, place)]
        if context := maybe(row, "dynamic_context", dict, place):
            texts.append(need(context, "text", str, place))
        self.draft.harness_facts["schemas"] = need(row, "tools", list, place)
        self._last = self.draft.message(Message("system", "\n\n".join(texts)), parent=self._last)

    def _actions(self, rows: list[tuple[str, Row]]) -> int:
        """The actions of one answer; how many there were."""
        place, first = rows[0]
        number = need(first, "llm_response_id", str, place)
        same = []
        for place, row in rows:
            if row.get("kind") != "ActionEvent" or row.get("llm_response_id") != number:
                break
            same.append((place, row))
        calls = tuple(self._call(row, place) for place, row in same)
        text = self._text([part for p, row in same for part in need(row, "thought", list, p)], place)
        message = Message("assistant", text, thinking=_thinking(first, place), calls=calls)
        foreign = {str(i): kept for i, (_, row) in enumerate(same) if (kept := rest(row, _ACTION))}
        data = {"message": message.to_json(), "finish": "stop"}
        self._last = self.draft.add("completion", data, parent=self._last, foreign=foreign)
        return len(same)

    def _call(self, row: Row, place: str) -> ToolCall:
        call_row = need(row, "tool_call", dict, place)
        text = (call_row["function"] if isinstance(call_row.get("function"), dict) else call_row).get("arguments")
        try:
            arguments = json.loads(text) if isinstance(text, str) else text
        except (ValueError, RecursionError):
            arguments = {"": text}  # what the model wrote, kept as it was: it is no JSON
        if not isinstance(arguments, dict):
            raise ForeignError(f"{place}: tool_call.arguments must be a JSON object, not {type(arguments).__name__}")
        return ToolCall(need(row, "tool_call_id", str, place), need(row, "tool_name", str, place), arguments)

    def _result(self, kind: str, row: Row, place: str) -> None:
        call_id, name = need(row, "tool_call_id", str, place), need(row, "tool_name", str, place)
        failed, foreign = True, rest(row, _RESULT)
        if kind == "AgentErrorEvent":
            text = need(row, "error", str, place)
        elif kind == "UserRejectObservation":
            text = maybe(row, "rejection_reason", str, place)
            by = "user" if row.get("rejection_source", "user") == "user" else "policy"
            approval = {"call_id": call_id, "name": name, "decision": "denied", "by": by, "reason": text}
            self.draft.add("approval", approval)
        else:
            seen = need(row, "observation", dict, place)
            content = seen.get("content", seen.get("output", ""))
            text = content if isinstance(content, str) else self._text(content, place)
            failed = bool(seen.get("is_error")) or seen.get("exit_code") not in (None, 0)
            foreign |= (
                {"observation": kept} if (kept := rest(seen, frozenset(("content", "output", "is_error")))) else {}
            )
        data = {"call_id": call_id, "name": name, "text": text, "failed": failed}
        self._last = self.draft.add("tool_result", data, parent=self._last, foreign=foreign)

    def _text(self, parts: Any, place: str) -> str:
        if isinstance(parts, str):
            return parts
        if not isinstance(parts, list):
            raise ForeignError(f"{place}: content must be text or a list of parts, not {type(parts).__name__}")
        texts = []
        for part in parts:
            if need(part, "type", str, place) == "text":
                texts.append(need(part, "text", str, place))
            else:
                self.draft.drop(f"{part['type']} parts")
        return "\n".join(texts)


def _thinking(row: Row, place: str) -> str:
    """The readable thinking of an answer: its own text, else the blocks'."""
    blocks = maybe(row, "thinking_blocks", list, place)
    thoughts = [maybe(need({"block": block}, "block", dict, place), "thinking", str, place) for block in blocks]
    return maybe(row, "reasoning_content", str, place) or "\n\n".join(thoughts)
