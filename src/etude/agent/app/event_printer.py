"""Events in words, for a terminal of any width, with colours or without: what progress, the terminal face and `attach` print.

Streamed text is printed line by line and only once; `tail` holds the line that has not ended, until its text or its turn has. What
comes from a model or a tool can't move the cursor or paint: control characters are shown as what they are.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rich.console import Console
from rich.style import Style
from rich.text import Text

from etude.agent.app.events import Event
from etude.core.trace.unicode import visible

# Of a tool's answer and of a diff; --json and `etude session show` have all of it.
RESULT_LINES, DIFF_LINES = 3, 40
DIM, BAD, GOOD, HEAD = Style(dim=True), Style(color="red"), Style(color="green"), Style(bold=True)


def plain(text: str) -> str:
    """Without what would steer a terminal; tabs become blanks."""
    return visible(text).expandtabs(4)


@dataclass
class Teller:
    """`answers` says whether the final text is told too (else somebody prints it elsewhere)."""

    console: Console
    answers: bool = True
    tail: str = ""
    tail_is_thought: bool = False
    _streamed: dict[str, str] = field(default_factory=dict)  # of the turn at work, by kind of item

    def __call__(self, event: Event) -> None:
        kind, item = event["type"], event.get("item", {})
        if kind.startswith(("turn.", "error")):  # a turn that was broken off never completes its items
            self._flush()
            self._streamed.clear()
        if kind == "item.updated" and item["type"] != "call_draft":
            self._piece(item)
        elif kind == "item.started" and item["type"] in ("command_execution", "tool_call"):
            self._line(f"→ {_called(item)}", HEAD)
        elif kind == "item.completed":
            self._completed(item)
        elif kind == "turn.started" and self.answers:
            self._line(f"» {plain(event['request'])}", HEAD)
        elif kind == "turn.failed":
            self._line(f"✗ {event['error']['message']}", BAD)
        elif kind == "turn.completed":
            used = event["usage"]
            if used["input_tokens"] + used["output_tokens"]:
                cached = f" ({used['cached_input_tokens']:,} cached)" if used["cached_input_tokens"] else ""
                self._line(f"✓ {used['input_tokens']:,} tokens in{cached}, {used['output_tokens']:,} out", DIM)
        elif kind == "error":
            self._line(f"error: {plain(event['message'])}", BAD)
        elif kind == "retry":
            self._line(retried(event), DIM)
        elif kind == "notice":
            self._line(f"! {plain(event['message'])}", DIM)

    def _piece(self, item: Event) -> None:
        if item.get("restarted"):
            if self._streamed:  # each kind of item is restarted, the turn once
                self.tail = ""
                self._streamed.clear()
                self._line("(broken off; the turn is asked for again)", DIM)
            return
        thought = item["type"] == "reasoning"
        if thought != self.tail_is_thought:
            self._flush()
            self.tail_is_thought = thought
        if thought or self.answers:
            self._streamed[item["type"]] = self._streamed.get(item["type"], "") + item["delta"]
            *lines, self.tail = (self.tail + plain(item["delta"])).split("\n")
            for line in lines:
                self._line(line, DIM if thought else None)

    def _completed(self, item: Event) -> None:
        kind = item["type"]
        if kind in ("agent_message", "reasoning"):
            self._text(item, kind == "reasoning")
        elif kind in ("command_execution", "tool_call"):
            self._result(item)
        elif kind == "file_change":
            self._change(item)
        elif kind == "user_message":
            self._line(f"» {item['text']}" if item["text"] else "» stop", HEAD)
        elif kind == "approval" and item["decision"] == "denied":
            self._line(f"✗ not allowed: {item.get('reason') or item['name']}", BAD)
        elif kind == "malformed":
            self._line(f"✗ a turn that could not be read: {item['problem']}", BAD)
        elif kind == "summary":
            self._line(f"⋯ summarized itself ({item['number']})", DIM)
        elif kind == "undo":
            self._line(f"↶ took back {', '.join(item['paths'])}", GOOD)

    def _text(self, item: Event, thought: bool) -> None:
        streamed, whole = self._streamed.pop(item["type"], None), item["text"]
        begun = bool(streamed) and whole.startswith(streamed or "")
        rest = whole.removeprefix(streamed or "") if begun or streamed is None else ""
        if thought == self.tail_is_thought:
            if begun:
                self.tail, rest = self.tail + plain(rest), ""
            self._flush()
        if rest and (thought or self.answers):
            self._flush()
            self._line(plain(rest), DIM if thought else None)

    def _result(self, item: Event) -> None:
        bad = item["status"] == "failed"
        text = item.get("output", item.get("result", ""))
        lines = plain(text).rstrip("\n").split("\n")
        for line in lines[:RESULT_LINES]:
            self._line(f"  {line}", BAD if bad else DIM, crop=True)
        if len(lines) > RESULT_LINES:
            self._line(f"  … {len(lines) - RESULT_LINES} more lines", DIM)

    def _change(self, item: Event) -> None:
        self._line(f"  {item['kind']} {plain(item['path'])} +{item['added']} -{item['removed']}", HEAD)
        lines = [line for line in plain(item["diff"]).split("\n") if not line.startswith(("---", "+++"))]
        for line in lines[:DIFF_LINES]:
            style = GOOD if line.startswith("+") else BAD if line.startswith("-") else DIM
            self._line(f"  {line}", style, crop=True)
        if len(lines) > DIFF_LINES:
            self._line(f"  … {len(lines) - DIFF_LINES} more lines", DIM)

    def _flush(self) -> None:
        if self.tail:
            self._line(self.tail, DIM if self.tail_is_thought else None)
        self.tail = ""

    def _line(self, line: str, style: Style | None = None, *, crop: bool = False) -> None:
        """One line; a cropped one keeps to the width."""
        text = Text(line, style=style or "")
        overflow = "ellipsis" if crop else "fold"
        self.console.print(text, soft_wrap=False, no_wrap=crop, overflow=overflow, crop=crop, highlight=False)


def retried(event: Event) -> str:
    """Why the next try waits, and how long."""
    tries = f"try {event['number']} of {event['of']}"
    return f"! {plain(event['message'])}: asked again in {event['wait_s']:g} s ({tries})"


def _called(item: Event) -> str:
    if item["type"] == "command_execution":
        return "$ " + plain(item["command"]).replace("\n", "; ")[:300]
    values = ", ".join(_short(value) for value in item["arguments"].values())
    return f"{item['name']}({plain(values)})"


def _short(value: object) -> str:
    text = str(value).replace("\n", "⏎")
    return text if len(text) <= 60 else f"{text[:59]}…"
