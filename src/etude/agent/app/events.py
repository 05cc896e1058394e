"""A session as a stream of events, with the names that Codex uses. `--json` prints them, and every user interface renders them.

    thread.started    thread_id, session                     once
    turn.started      request                                work on a request starts
    item.started      item                                   a call runs, or a text starts
    item.updated      item (with `delta`)                    a piece of the text; `restarted`: earlier pieces are void
    item.completed    item                                   the item is complete
    turn.completed    usage, reason, message                 the request is answered
    turn.failed       usage, error {reason, message}         the request failed
    error             message                                the session can't continue
    retry             message, wait_s, number, of            the turn is requested again after a wait
    notice            message                                information for the user: a server left out, files being indexed

Items: agent_message, reasoning (text) · call_draft (a call while a local model writes it) · command_execution (command, output)
· tool_call (name, arguments, result) · file_change (path, kind, added, removed, diff) · user_message (delivery, text) ·
approval · summary · malformed · undo.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import Any

from etude.agent.app.journal import JournalEdit, UndoJournal
from etude.agent.harness.observer import Part
from etude.agent.harness.presets.preset import Preset
from etude.agent.metrics.facts import command
from etude.agent.policy.protocol import RetryWait
from etude.core.trace.change import split
from etude.core.trace.entry import Entry
from etude.core.trace.message import Message, ToolCall

Event = dict[str, Any]
Sink = Callable[[Event], None]
# Lines shown of one file's diff. The rest is counted.
MAX_DIFF_LINES = 200
# Larger files are not compared, because difflib would take seconds.
MAX_DIFF_BYTES = 2 << 20
_KINDS = {"create": "add", "change": "update", "delete": "delete"}
_TEXTS: dict[Part, str] = {"text": "agent_message", "thinking": "reasoning", "call": "call_draft"}


class EventStream:
    """An observer of the agent and of edits that writes events to a sink."""

    def __init__(self, preset: Preset, sink: Sink) -> None:
        self._preset = preset
        self._emit = sink
        self._number = 0
        self._open: dict[str, str] = {}  # "text" or "thinking", or a call -> its item's id
        self._calls: dict[str, Event] = {}
        self._sides: dict[str, tuple[bytes | None, bytes | None]] = {}
        self._usage = {"input_tokens": 0, "cached_input_tokens": 0, "output_tokens": 0}
        self._idle = True

    def delta(self, part: Part, piece: str) -> None:
        if not piece:
            for kind, item_type in _TEXTS.items():
                if kind in self._open:
                    self._item("updated", {"type": item_type, "delta": "", "restarted": True}, self._open[kind])
            return
        if part not in self._open:
            self._open[part] = self._item("started", {"type": _TEXTS[part], "text": ""})
        self._item("updated", {"type": _TEXTS[part], "delta": piece}, self._open[part])

    def entry(self, entry: Entry) -> None:
        handler = getattr(self, f"_on_{entry.type}", None)
        if handler is not None:
            handler(entry.data)

    def waiting(self, wait: RetryWait) -> None:
        self._emit(
            {
                "type": "retry",
                "message": wait.reason,
                "wait_s": round(wait.seconds, 1),
                "number": wait.number,
                "of": wait.of,
            }
        )

    def idle(self, reason: str, message: str) -> None:
        usage = dict(self._usage)
        self._idle = True
        if reason in ("message", "done"):
            self._emit({"type": "turn.completed", "usage": usage, "reason": reason, "message": message})
        else:
            error = {"reason": reason, "message": _WHY.get(reason, reason)}
            self._emit({"type": "turn.failed", "usage": usage, "error": error})

    def wrote(self, path: str, before: bytes | None, after: bytes | None) -> None:
        """Keep the bytes before and after, for the diff of this file's next `edit` entry."""
        first = self._sides[path][0] if path in self._sides else before
        self._sides[path] = (first, after)

    def _item(self, stage: str, item: Event, number: str | None = None) -> str:
        if number is None:
            number = f"item_{self._number}"
            self._number += 1
        self._emit({"type": f"item.{stage}", "item": {"id": number, **item}})
        return number

    def _on_message(self, data: dict[str, Any]) -> None:
        delivery = data.get("delivery")
        if data["role"] != "user":
            return
        if data.get("summary"):
            if self._idle:  # the user asks an idle agent for a summary
                self._start_turn("/compact")
        elif delivery in (None, "queue"):
            self._start_turn(data["text"])
        else:
            self._item("completed", {"type": "user_message", "delivery": delivery, "text": data["text"]})

    def _start_turn(self, request: str) -> None:
        self._idle = False
        self._usage = dict.fromkeys(self._usage, 0)
        self._emit({"type": "turn.started", "request": request})

    def _on_completion(self, data: dict[str, Any]) -> None:
        message = Message.from_json(data["message"])
        for key, count in (
            ("input_tokens", "input_tokens"),
            ("cached_input_tokens", "cached_tokens"),
            ("output_tokens",) * 2,
        ):
            self._usage[key] += data["usage"][count]
        for part, kind, text in (("thinking", "reasoning", message.thinking), ("text", "agent_message", message.text)):
            number = self._open.pop(part, None)
            if text or number is not None:
                self._item("completed", {"type": kind, "text": text}, number)
        if (draft := self._open.pop("call", None)) is not None:
            self._item("completed", {"type": _TEXTS["call"]}, draft)
        if message.fault is not None:
            self._item("completed", {"type": "malformed", "problem": message.fault})
        for call in message.calls:
            if call.name == "done":
                continue  # it ends the turn and never gets a result
            self._calls[call.id] = self._call_item(call)
            self._open[call.id] = self._item("started", {**self._calls[call.id], "status": "in_progress"})

    def _call_item(self, call: ToolCall) -> Event:
        if self._preset.does(call.name) == "shell":
            return {"type": "command_execution", "command": command(call)}
        return {"type": "tool_call", "name": call.name, "arguments": call.arguments}

    def _on_tool_result(self, data: dict[str, Any]) -> None:
        item = self._calls.pop(data.get("call_id") or "", None)
        if item is None:
            return  # the answer to a malformed turn, which was reported with the turn
        key = "output" if item["type"] == "command_execution" else "result"
        status = "failed" if data["failed"] else "completed"
        done = {**item, key: data["text"], "status": status, "seconds": data.get("seconds")}
        self._item("completed", done, self._open.pop(data["call_id"]))

    def _on_edit(self, data: dict[str, Any]) -> None:
        sides = self._sides.pop(data["path"], None)
        diff = diff_of(data["path"], *sides) if sides else ""
        row = {"path": data["path"], "kind": _KINDS[data["kind"]], "added": data["added"], "removed": data["removed"]}
        self._item("completed", {"type": "file_change", **row, "diff": diff})

    def _on_approval(self, data: dict[str, Any]) -> None:
        self._item("completed", {"type": "approval", **data})

    def _on_summary(self, data: dict[str, Any]) -> None:
        self._item("completed", {"type": "summary", "number": data.get("number", 0), "text": data["text"]})

    def _on_shortened(self, data: dict[str, Any]) -> None:
        window = f" of {data['window']:,} tokens" if data.get("window") else ""
        count = len(data["texts"])
        texts = "one of its texts is shortened" if count == 1 else f"{count} of its texts are shortened"
        how = texts if count else "no text of it can be shortened"
        self._emit(notice(f"the conversation is too long for the model's window{window}: {how}"))

    def _on_undo(self, data: dict[str, Any]) -> None:
        self._item("completed", {"type": "undo", "paths": data["paths"]})

    def _on_fault(self, data: dict[str, Any]) -> None:
        self._emit({"type": "error", "message": data["message"]})


_WHY = {
    "stopped": "stopped by the person",
    "max_turns": "the request used up its turns; say more to go on, or raise --max-turns",
    "max_tokens": "the session used up its tokens; begin a new one",
    "no_answer": "the model gave no whole answer, again and again; ask for less at once, in other words, or use another model",
    "refused": "the model could not take the conversation: too long for it, or filtered",
}


def changes(journal: UndoJournal) -> list[Event]:
    """Each file's net change by the session's tools, as `file_change` items. Files without a net change are left out."""
    first: dict[str, JournalEdit] = {}
    last: dict[str, JournalEdit] = {}
    for edit in journal.edits():
        first.setdefault(edit.path, edit)
        last[edit.path] = edit
    rows = ((path, first[path].before, last[path].after) for path in first)
    return [_net(path, journal.blob(old), journal.blob(new)) for path, old, new in rows if old != new]


def _net(path: str, before: bytes | None, after: bytes | None) -> Event:
    kind = "add" if before is None else "delete" if after is None else "update"
    diff = diff_of(path, before, after, most_lines=None)
    lines = [line for line in diff.split("\n") if not line.startswith(("---", "+++"))]
    added, removed = (sum(line.startswith(sign) for line in lines) for sign in "+-")
    return {"type": "file_change", "path": path, "kind": kind, "added": added, "removed": removed, "diff": diff}


def notice(line: str) -> Event:
    """Information for the user while the session continues."""
    return {"type": "notice", "message": line}


def diff_of(path: str, before: bytes | None, after: bytes | None, most_lines: int | None = MAX_DIFF_LINES) -> str:
    """A unified diff, or a note in parentheses for a file that is not text or is too large."""
    if max(len(before or b""), len(after or b"")) > MAX_DIFF_BYTES:
        return "(too large to be shown)"
    try:
        old, new = (split((data or b"").decode()) for data in (before, after))
    except UnicodeDecodeError:
        return "(no text)"
    lines = list(difflib.unified_diff(old, new, f"a/{path}", f"b/{path}", lineterm="", n=2))
    more = len(lines) - (most_lines or len(lines))
    return "\n".join(lines[:most_lines] + ([f"… {more} more lines"] if more > 0 else []))
