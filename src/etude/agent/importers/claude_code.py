"""Claude Code: `~/.claude/projects/<folder>/<session>.jsonl`, lines of type user, assistant, system, summary and others.

Written against the format as public descriptions give it for versions 1.0.83 to 2.1.12. One answer of the model is spread
over several lines with the same `message.id`, one content block each; they become one completion. The tree (`parentUuid`)
is kept; side chains (sub-agents) and branches are entries like any other, under `foreign.isSidechain`.
"""

from __future__ import annotations

from typing import Any

from etude.agent.importers.draft import ForeignError, Row, SessionDraft, maybe, need, rest, unix_s
from etude.core.trace.change import TextChange
from etude.core.trace.message import Message, ToolCall

NAME = "claude-code"
# Keys that tell this agent's lines apart from others'.
TYPES = frozenset(("user", "assistant", "system", "summary", "file-history-snapshot", "queue-operation", "progress"))

_LINE = frozenset(
    "type uuid parentUuid sessionId timestamp version cwd gitBranch userType message toolUseResult".split()
)
_COPIES = frozenset(("originalFile", "content", "file", "stdout", "stderr"))  # the text is in the result or in an edit


def read(rows: list[tuple[str, Row]]) -> SessionDraft:
    """The session of a log's lines, each with its place. Raises ForeignError."""
    return _ClaudeCodeReader().read(rows)


class _ClaudeCodeReader:
    def __init__(self) -> None:
        self.draft = SessionDraft(NAME)
        self._entry: dict[str, int] = {}  # uuid -> entry
        self._names: dict[str, str] = {}  # tool_use id -> tool
        self._blocks: dict[str, list[tuple[str, Any]]] = {}  # message.id -> its blocks so far
        self._answers: dict[str, int] = {}  # message.id -> entry

    def read(self, rows: list[tuple[str, Row]]) -> SessionDraft:
        at = 0
        while at < len(rows):
            place, row = rows[at]
            kind = need(row, "type", str, place)
            self.draft.at(unix_s(row.get("timestamp"), place))
            self._head(row, place)
            if kind == "assistant":
                at += self._assistant(rows[at:])
                continue
            if kind == "user":
                self._user(row, place)
            else:
                self._know(row, place, self.draft.keep(row))
            at += 1
        self.draft.rows = len(rows)
        return self.draft

    def _head(self, row: Row, place: str) -> None:
        draft = self.draft
        draft.session_id = draft.session_id or maybe(row, "sessionId", str, place)
        draft.agent_version = draft.agent_version or maybe(row, "version", str, place)
        draft.workspace = draft.workspace or maybe(row, "cwd", str, place)
        if branch := maybe(row, "gitBranch", str, place):
            draft.facts.setdefault("git_branch", branch)

    def _know(self, row: Row, place: str, entry: int) -> None:
        """Lines name their parent; some have no name themselves."""
        if name := maybe(row, "uuid", str, place):
            self._entry[name] = entry

    def _parent(self, row: Row, place: str) -> int | None:
        return self._entry.get(maybe(row, "parentUuid", str, place))

    def _assistant(self, rows: list[tuple[str, Row]]) -> int:
        """One answer; how many lines it took."""
        place, first = rows[0]
        number = need(need(first, "message", dict, place), "id", str, place)
        lines = []
        for place, row in rows:
            if row.get("type") != "assistant" or need(row, "message", dict, place).get("id") != number:
                break
            lines.append((place, row))
        blocks = self._blocks.setdefault(number, [])
        blocks += [(p, b) for p, row in lines for b in need(row["message"], "content", list, p)]
        last = lines[-1][1]["message"]
        model = maybe(last, "model", str, place)
        self.draft.policy = self.draft.policy or model
        data = {
            "message": self._message(blocks).to_json(),
            "finish": "length" if last.get("stop_reason") == "max_tokens" else "stop",
            "usage": _usage(maybe(last, "usage", dict, place), place),
        }
        entry = self._answers.get(number)
        if entry is None:
            foreign = rest(first, _LINE) | ({"model": model} if model != self.draft.policy else {})
            parent = self._parent(first, place)
            entry = self._answers[number] = self.draft.add("completion", data, parent=parent, foreign=foreign)
        else:  # results of its first calls came between the lines of one answer
            self.draft.renew(entry, data)
        for place, row in lines:
            self._know(row, place, entry)
        return len(lines)

    def _message(self, blocks: list[tuple[str, Any]]) -> Message:
        text, thinking, calls = [], [], []
        for place, block in blocks:
            kind = need(block, "type", str, place)
            if kind == "text":
                text.append(need(block, "text", str, place))
            elif kind == "thinking":
                thinking.append(need(block, "thinking", str, place))
            elif kind == "tool_use":
                call = ToolCall(
                    need(block, "id", str, place), need(block, "name", str, place), need(block, "input", dict, place)
                )
                self._names[call.id] = call.name
                calls.append(call)
            elif kind == "redacted_thinking":
                self.draft.drop("encrypted thinking")
            else:
                raise ForeignError(f"{place}: a content block of type {kind!r}; known are text, thinking, tool_use")
        return Message("assistant", "\n\n".join(text), thinking="\n\n".join(thinking), calls=tuple(calls))

    def _user(self, row: Row, place: str) -> None:
        content = need(need(row, "message", dict, place), "content", (str, list), place)
        parent, foreign = self._parent(row, place), rest(row, _LINE)
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        for block in blocks:
            if need(block, "type", str, place) == "tool_result":
                parent = self._result(block, row, place, parent)
        said = self._text([block for block in blocks if block["type"] != "tool_result"], place)
        if said:
            if row.get("isCompactSummary"):
                parent = self.draft.summary(said, foreign=foreign)
            else:
                parent = self.draft.message(Message("user", said), parent=parent, foreign=foreign)
        self._know(row, place, parent if parent is not None else self.draft.keep(row))

    def _result(self, block: Row, row: Row, place: str, parent: int | None) -> int:
        call_id = need(block, "tool_use_id", str, place)
        content = need(block, "content", (str, list), place) if block.get("content") else ""
        text = content if isinstance(content, str) else self._text(content, place)
        name = self._names.get(call_id, "")
        data = {"call_id": call_id, "name": name, "text": text, "failed": bool(block.get("is_error"))}
        result_row = row.get("toolUseResult")
        foreign = (
            {"toolUseResult": rest(result_row, _COPIES)}
            if isinstance(result_row, dict) and rest(result_row, _COPIES)
            else {}
        )
        entry = self.draft.add("tool_result", data, parent=parent, foreign=foreign)
        if isinstance(result_row, dict):
            self.draft.drop("copies of files and outputs", len(_COPIES & result_row.keys()))
            if (change := _change(result_row)) is not None and not data["failed"]:
                self.draft.edit(call_id, change)
        return entry

    def _text(self, blocks: list[Any], place: str) -> str:
        parts = []
        for block in blocks:
            if need(block, "type", str, place) == "text":
                parts.append(need(block, "text", str, place))
            else:
                self.draft.drop(f"{block['type']} blocks")
        return "\n".join(parts)


def _usage(usage: Row, place: str) -> Row:
    cached = maybe(usage, "cache_read_input_tokens", int, place)
    fresh = maybe(usage, "input_tokens", int, place) + maybe(usage, "cache_creation_input_tokens", int, place)
    answer = maybe(usage, "output_tokens", int, place)
    return {"input_tokens": fresh + cached, "cached_tokens": cached, "output_tokens": answer, "seconds": 0.0}


def _change(result_row: Row) -> TextChange | None:
    """The edit that a tool's own account tells of: of Write (`content`) or Edit (`oldString`, `newString`)."""
    path, before = result_row.get("filePath"), result_row.get("originalFile")
    if not isinstance(path, str):
        return None
    if result_row.get("type") in ("create", "update") and isinstance(result_row.get("content"), str):
        return TextChange(path, before if isinstance(before, str) else None, result_row["content"])
    if (
        isinstance(before, str)
        and isinstance(result_row.get("oldString"), str)
        and isinstance(result_row.get("newString"), str)
    ):
        count = -1 if result_row.get("replaceAll") else 1
        return TextChange(path, before, before.replace(result_row["oldString"], result_row["newString"], count))
    return None
