"""A session as a stream of events, in the names that Codex gives them: what `--json` prints and every face draws from.

    thread.started    thread_id, session                     once
    turn.started      request                                a request is taken up
    item.started      item                                   a call runs, or a text begins
    item.updated      item (with `delta`)                    a piece of the text; `restarted`: those before it are void
    item.completed    item                                   it is over
    turn.completed    usage, reason, message                 the request is answered
    turn.failed       usage, error {reason, message}         the request is given up
    error             message                                the session can't go on
    retry             message, wait_s, number, of            the turn is asked for again after a wait
    notice            message                                what the person should know: a server left out, files being indexed

Items: agent_message, reasoning (text) · call_draft (a call while a local model writes it) · command_execution (command, output)
· tool_call (name, arguments, result) · file_change (path, kind, added, removed, diff) · user_message (delivery, text) ·
approval · summary · malformed · undo.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import Any

from etude.agent.app.journal import Edit, UndoJournal
from etude.agent.harness.presets.preset import Preset
from etude.agent.harness.watcher import Part
from etude.agent.metrics.facts import command
from etude.agent.policy.protocol import Wait
from etude.core.trace.change import split
from etude.core.trace.entry import Entry
from etude.core.trace.message import Message, ToolCall

Event = dict[str, Any]
Sink = Callable[[Event], None]
# Of one file's diff; the rest is counted.
MAX_DIFF_LINES = 200
# A larger file is not compared: difflib would take seconds.
MAX_DIFF_BYTES = 2 << 20
_KINDS = {"create": "add", "change": "update", "delete": "delete"}
_TEXTS: dict[Part, str] = {"text": "agent_message", "thinking": "reasoning", "call": "call_draft"}


class Events:
    """A watcher, and a journal of edits, that tells a sink."""

    def __init__(self, preset: Preset, sink: Sink) -> None:
        self._preset = preset
        self._tell = sink
        self._number = 0
        self._open: dict[str, str] = {}  # "text" or "thinking", or a call -> its item's id
        self._calls: dict[str, Event] = {}
        self._sides: dict[str, tuple[bytes | None, bytes | None]] = {}
        self._usage = {"input_tokens": 0, "cached_input_tokens": 0, "output_tokens": 0}
        self._idle = True

    def delta(self, part: Part, piece: str) -> None:
        if not piece:
            for kind, told in _TEXTS.items():
                if kind in self._open:
                    self._item("updated", {"type": told, "delta": "", "restarted": True}, self._open[kind])
            return
        if part not in self._open:
            self._open[part] = self._item("started", {"type": _TEXTS[part], "text": ""})
        self._item("updated", {"type": _TEXTS[part], "delta": piece}, self._open[part])

    def entry(self, entry: Entry) -> None:
        told = getattr(self, f"_on_{entry.type}", None)
        if told is not None:
            told(entry.data)

    def waiting(self, wait: Wait) -> None:
        self._tell(
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
            self._tell({"type": "turn.completed", "usage": usage, "reason": reason, "message": message})
        else:
            error = {"reason": reason, "message": _WHY.get(reason, reason)}
            self._tell({"type": "turn.failed", "usage": usage, "error": error})

    def wrote(self, path: str, before: bytes | None, after: bytes | None) -> None:
        """A journal's ears: the bytes that the next `edit` entry of this file is about."""
        first = self._sides[path][0] if path in self._sides else before
        self._sides[path] = (first, after)

    def _item(self, stage: str, item: Event, number: str | None = None) -> str:
        if number is None:
            number = f"item_{self._number}"
            self._number += 1
        self._tell({"type": f"item.{stage}", "item": {"id": number, **item}})
        return number

    def _on_message(self, data: dict[str, Any]) -> None:
        delivery = data.get("delivery")
        if data["role"] != "user":
            return
        if data.get("summary"):
            if self._idle:  # the person wishes one of an agent that waits
                self._started("/compact")
        elif delivery in (None, "queue"):
            self._started(data["text"])
        else:
            self._item("completed", {"type": "user_message", "delivery": delivery, "text": data["text"]})

    def _started(self, request: str) -> None:
        self._idle = False
        self._usage = dict.fromkeys(self._usage, 0)
        self._tell({"type": "turn.started", "request": request})

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
                continue  # the turn's end, told as such; it never gets a result
            self._calls[call.id] = self._described(call)
            self._open[call.id] = self._item("started", {**self._calls[call.id], "status": "in_progress"})

    def _described(self, call: ToolCall) -> Event:
        if self._preset.does(call.name) == "shell":
            return {"type": "command_execution", "command": command(call)}
        return {"type": "tool_call", "name": call.name, "arguments": call.arguments}

    def _on_tool_result(self, data: dict[str, Any]) -> None:
        item = self._calls.pop(data.get("call_id") or "", None)
        if item is None:
            return  # a malformed turn's answer, told with the turn
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
        self._tell(notice(f"the conversation is too long for the model's window{window}: {how}"))

    def _on_undo(self, data: dict[str, Any]) -> None:
        self._item("completed", {"type": "undo", "paths": data["paths"]})

    def _on_fault(self, data: dict[str, Any]) -> None:
        self._tell({"type": "error", "message": data["message"]})


_WHY = {
    "stopped": "stopped by the person",
    "max_turns": "the request used up its turns; say more to go on, or raise --max-turns",
    "max_tokens": "the session used up its tokens; begin a new one",
    "no_answer": "the model gave no whole answer, again and again; ask for less at once, in other words, or use another model",
    "refused": "the model could not take the conversation: too long for it, or filtered",
}


def changes(journal: UndoJournal) -> list[Event]:
    """What became of each file since the session began, by its tools' edits: `file_change` items, those that are as before left out."""
    first: dict[str, Edit] = {}
    last: dict[str, Edit] = {}
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
    """What the person should know, and the session goes on."""
    return {"type": "notice", "message": line}


def diff_of(path: str, before: bytes | None, after: bytes | None, most_lines: int | None = MAX_DIFF_LINES) -> str:
    """A unified diff; words for what is no text, or too large for anybody to read."""
    if max(len(before or b""), len(after or b"")) > MAX_DIFF_BYTES:
        return "(too large to be shown)"
    try:
        old, new = (split((data or b"").decode()) for data in (before, after))
    except UnicodeDecodeError:
        return "(no text)"
    lines = list(difflib.unified_diff(old, new, f"a/{path}", f"b/{path}", lineterm="", n=2))
    more = len(lines) - (most_lines or len(lines))
    return "\n".join(lines[:most_lines] + ([f"… {more} more lines"] if more > 0 else []))
