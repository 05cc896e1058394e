"""Prints events as text, for a terminal of any width, with or without colours: for headless progress, the terminal app and `attach`.

Streamed text is printed line by line and only once. `tail` holds the unfinished line until its text or its turn ends. Text from a model
or a tool can't move the cursor or set colours, because control characters are made visible.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rich.console import Console
from rich.style import Style
from rich.text import Text

from etude.agent.app.events import Event
from etude.core.trace.unicode import visible

# Lines shown of a tool result and of a diff. --json and `etude session show` print all of it.
RESULT_LINES, DIFF_LINES = 3, 40
DIM, BAD, GOOD, HEAD = Style(dim=True), Style(color="red"), Style(color="green"), Style(bold=True)


def plain(text: str) -> str:
    """The text without terminal control sequences, and with tabs expanded."""
    return visible(text).expandtabs(4)


@dataclass
class EventPrinter:
    """Prints events to a console. `answers`: also print the agent's text, which is otherwise printed elsewhere."""

    console: Console
    answers: bool = True
    tail: str = ""
    tail_is_thought: bool = False
    _streamed: dict[str, str] = field(default_factory=dict)  # text of the current turn, by kind of item

    def __call__(self, event: Event) -> None:
        kind, item = event["type"], event.get("item", {})
        if kind.startswith(("turn.", "error")):  # an interrupted turn never completes its items
            self._flush()
            self._streamed.clear()
        if kind == "item.updated" and item["type"] != "call_draft":
            self._piece(item)
        elif kind == "item.started" and item["type"] in ("command_execution", "tool_call"):
            self._line(f"→ {_call_text(item)}", HEAD)
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
            self._line(retry_text(event), DIM)
        elif kind == "notice":
            self._line(f"! {plain(event['message'])}", DIM)

    def _piece(self, item: Event) -> None:
        if item.get("restarted"):
            if self._streamed:  # there is one event for each kind of item, but the turn restarts once
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
        """Print one line. `crop` cuts it at the terminal's width."""
        text = Text(line, style=style or "")
        overflow = "ellipsis" if crop else "fold"
        self.console.print(text, soft_wrap=False, no_wrap=crop, overflow=overflow, crop=crop, highlight=False)


def retry_text(event: Event) -> str:
    """Why the next attempt waits, and how long."""
    tries = f"try {event['number']} of {event['of']}"
    return f"! {plain(event['message'])}: asked again in {event['wait_s']:g} s ({tries})"


def _call_text(item: Event) -> str:
    if item["type"] == "command_execution":
        return "$ " + plain(item["command"]).replace("\n", "; ")[:300]
    values = ", ".join(_short(value) for value in item["arguments"].values())
    return f"{item['name']}({plain(values)})"


def _short(value: object) -> str:
    text = str(value).replace("\n", "⏎")
    return text if len(text) <= 60 else f"{text[:59]}…"
