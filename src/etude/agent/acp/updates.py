"""What a session records, as the session updates that an editor shows. Pure: a watcher's words in, updates out, in order."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

from acp import helpers
from acp.schema import FileEditToolCallContent, PlanEntryStatus, ToolCallLocation, ToolKind

from etude.agent.harness.observer import Part
from etude.agent.harness.presets.presented_tool import PresentedTool
from etude.agent.harness.presets.preset import Preset
from etude.core.trace.entry import Entry
from etude.core.trace.message import ToolCall

_KINDS: dict[str, ToolKind] = {
    "read": "read",
    **dict.fromkeys(("list", "glob", "grep", "codebase_search", "lints"), "search"),
    **dict.fromkeys(("write", "edit", "multi_edit", "apply_patch"), "edit"),
    "delete": "delete",
    **dict.fromkeys(("shell", "test", "job_output", "job_kill"), "execute"),
    **dict.fromkeys(("web_search", "web_fetch"), "fetch"),
    "todo": "think",
}  # fmt: skip
# How the to-do tool shows an item: a mark, its id, its text.
_ITEM = re.compile(r"^\[(.)\] (\S+) (.*)$", re.MULTILINE)
_STATUS: dict[str, PlanEntryStatus] = {" ": "pending", ">": "in_progress", "x": "completed"}
_TITLE_CHARS = 120
# Arguments that say best what a call is about, by the names that tools themselves give them.
_TELLING = ("command", "path", "pattern", "query", "url")


class Updates:
    """One session's. `folder` makes paths absolute, as the protocol wants them."""

    def __init__(self, preset: Preset, folder: Path) -> None:
        self._preset = preset
        self._folder = folder
        self._streamed: dict[Part, str] = defaultdict(str)  # of the turn that is being sampled
        self._files: dict[str, tuple[str | None, str]] = {}  # path -> text before and after, not sent yet
        self._diffs: dict[str, list[FileEditToolCallContent]] = defaultdict(list)  # call -> what it edited

    def delta(self, part: Part, piece: str) -> list[Any]:
        """A piece of a turn. The protocol has no word for a call that is still being written."""
        if part == "call":
            return []
        self._streamed[part] += piece
        return [_said(part, piece)] if piece else []

    def on_file_change(self, path: str, before: bytes | None, after: bytes | None) -> None:
        """A tool changed a file; sent with the `edit` entry that follows. Binary files have no diff."""
        try:
            old, new = (None if data is None else data.decode() for data in (before, after))
        except UnicodeDecodeError:
            return
        first = self._files[path][0] if path in self._files else old
        self._files[path] = (first, new or "")

    def entry(self, entry: Entry, *, replayed: bool = False) -> list[Any]:
        """An entry of the session. `replayed`: the editor has not seen it, so the person's words are sent as well."""
        if entry.type == "completion":
            return self._completion(entry.data["message"])
        if entry.type == "tool_result" and entry.data.get("call_id"):
            return self._result(entry.data)
        if entry.type == "edit":
            return self._edit(entry.data)
        if entry.type == "message" and replayed and entry.data["role"] == "user" and not entry.data.get("summary"):
            return [helpers.update_user_message_text(entry.data["text"])] if entry.data["text"] else []
        return []

    def call(self, call: ToolCall) -> dict[str, Any]:
        """The update about a call before it runs, by the names of the SDK's helpers."""
        path = self._argument(call, "path")
        places = [ToolCallLocation(path=str(self._folder / path))] if path else None
        return {
            "title": self._title(call),
            "kind": _KINDS.get(self._preset.does(call.name), "other"),
            "locations": places,
            "raw_input": call.arguments,
        }

    def _completion(self, message: dict[str, Any]) -> list[Any]:
        """The part of a turn that was not sent in pieces, and its calls."""
        parts: tuple[tuple[Part, str], ...] = (("thinking", message.get("thinking", "")), ("text", message["text"]))
        updates = [_said(part, rest) for part, whole in parts if (rest := _rest(whole, self._streamed[part]))]
        self._streamed.clear()
        for row in message.get("calls", ()):
            call = ToolCall(**row)
            if call.name == "done":  # the last words of a preset that has a tool for them
                updates.append(_said("text", str(call.arguments.get("message", ""))))
            else:
                updates.append(helpers.start_tool_call(call.id, status="pending", **self.call(call)))
        return updates

    def _result(self, data: dict[str, Any]) -> list[Any]:
        content = [helpers.tool_content(helpers.text_block(data["text"]))]
        status = "failed" if data["failed"] else "completed"
        updates: list[Any] = [helpers.update_tool_call(data["call_id"], status=status, content=content)]
        if self._preset.skinned and self._preset.does(data["name"]) == "todo" and not data["failed"]:
            updates.append(plan(data["text"]))
        return updates

    def _edit(self, data: dict[str, Any]) -> list[Any]:
        path, hunks = str(self._folder / data["path"]), data["hunks"]
        texts = self._files.pop(data["path"], None)
        place = ToolCallLocation(path=path, line=hunks[0]["new_start"] if hunks else None)
        if texts is None:  # replayed: a session keeps hashes of the lines, not the lines
            return [helpers.update_tool_call(data["call_id"], locations=[place])]
        diffs = self._diffs[data["call_id"]]
        diffs.append(helpers.tool_diff_content(path, texts[1], texts[0]))
        return [helpers.update_tool_call(data["call_id"], content=list(diffs), locations=[place])]

    def _title(self, call: ToolCall) -> str:
        subject = next((text for name in _TELLING if (text := self._argument(call, name))), "")
        words = subject if subject and self._preset.does(call.name) == "shell" else f"{call.name} {subject}".strip()
        row = words.split("\n")[0]
        return row if len(row) <= _TITLE_CHARS else row[: _TITLE_CHARS - 1] + "…"

    def _argument(self, call: ToolCall, name: str) -> str:
        """A text argument by its canonical name; "" without one."""
        tool = self._preset.tools.get(call.name)
        shown = tool.presented.get(name, "") if isinstance(tool, PresentedTool) else name
        value = call.arguments.get(shown)
        return value if isinstance(value, str) else ""


def plan(shown: str) -> Any:
    """The to-do list as the tool shows it, as a plan; what was cancelled is left out."""
    rows: Sequence[tuple[str, str, str]] = _ITEM.findall(shown)
    return helpers.update_plan(
        [helpers.plan_entry(text, status=_STATUS[mark]) for mark, _, text in rows if mark in _STATUS]
    )


def _said(part: Part, text: str) -> Any:
    tell = helpers.update_agent_message_text if part == "text" else helpers.update_agent_thought_text
    return tell(text)


def _rest(whole: str, streamed: str) -> str:
    """The text left to send: all of it after pieces of a turn that was retried. Pieces may leave out the blanks in front."""
    sent = next((text for text in (whole, whole.lstrip()) if text.startswith(streamed)), None)
    return whole if sent is None else sent.removeprefix(streamed)


assert set(_STATUS.values()) == set(get_args(PlanEntryStatus)), "the protocol's plan knows other states than ours"
