"""A session as text for a terminal: one block an entry. Control characters of a session's texts are shown, not obeyed."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Sequence

from etude.cli.session.gist import token_counts, tool_counts
from etude.core.trace.entry import Entry, SessionHeader

# A tool's answer is there to be recognised; --full shows all of it.
SHOWN_LINES = 6
SHOWN_CHARS = 160
# Entry types with a form of their own; the others are shown as `key=value`.
_SHOWN = frozenset("message completion tool_result summary edit counters end foreign".split())


@dataclass
class TranscriptRenderer:
    """Renders entries in order; knows which turn it is, and how each call began."""

    full: bool = False
    turn: int = 0
    _asked: dict[str, float] = field(default_factory=dict)  # call id -> when its turn was recorded

    def header(self, header: SessionHeader) -> list[str]:
        """Who, when, with which harness."""
        began = datetime.fromtimestamp(header.created_unix_s, UTC).strftime("%Y-%m-%d %H:%M UTC")
        parts = [f"session {header.session_id}"]
        parts += [f"task {header.task_id}"] if header.task_id else []
        parts += [f"policy {header.policy}"] if header.policy else []
        parts += [f"effort {header.effort}", began]
        parts += [f"harness {header.harness}"] if header.harness else []
        return [clean(" · ".join(parts))]

    def entry(self, entry: Entry) -> list[str]:
        """An entry's block of lines."""
        known = getattr(self, f"_{entry.type}") if entry.type in _SHOWN else self._other
        lines = known(entry)
        stamp = f"{entry.at_s:9.2f} s  "
        blank = " " * len(stamp)
        return [f"{stamp if i == 0 else blank}{clean(line)}" for i, line in enumerate(lines)]

    def footer(self, entries: Sequence[Entry]) -> list[str]:
        """Tools and tokens of the whole session."""
        rows = list(entries)
        tools = [
            f"{name} {found['calls']}" + (f" ({found['failed']} failed)" if found["failed"] else "")
            for name, found in tool_counts(rows).items()
        ]
        tokens = token_counts(rows)
        summary = f"{tokens['input_tokens']:,} in ({tokens['cached_tokens']:,} cached), {tokens['output_tokens']:,} out"
        lines = [f"turns: {self.turn}"] + ([f"tools: {', '.join(tools)}"] if tools else [])
        lines += [f"tokens: {summary}"] if any(tokens.values()) else []
        return [clean(line) for line in lines]

    def _message(self, entry: Entry) -> list[str]:
        data = entry.data
        marks = [data["delivery"]] if data.get("delivery") else ["asks for a summary"] if data.get("summary") else []
        return self._block(
            data["role"] + "".join(f" ({mark})" for mark in marks), data["text"], cut=data["role"] == "system"
        )

    def _completion(self, entry: Entry) -> list[str]:
        self.turn += 1
        message, usage = entry.data.get("message") or {}, entry.data.get("usage") or {}
        facts = [f"{usage['seconds']:.2f} s"] if usage.get("seconds") else []
        facts += [f"{usage['input_tokens']:,} in, {usage['output_tokens']:,} out"] if usage.get("output_tokens") else []
        facts += [f"cut off ({entry.data['finish']})"] if entry.data.get("finish", "stop") != "stop" else []
        lines = [f"turn {self.turn}" + (f" · {' · '.join(facts)}" if facts else "")]
        lines += self._block("  thinks", message.get("thinking", ""), cut=True) if message.get("thinking") else []
        lines += [f"  {line}" for line in self._lines(message.get("text", ""), cut=False)]
        lines += [f"  malformed: {message['problem']}"] if message.get("problem") else []
        for call in message.get("calls", []):
            self._asked[call["id"]] = entry.at_s
            lines.append(f"  → {call['name']}({self._brief(call['arguments'])})")
        return lines

    def _tool_result(self, entry: Entry) -> list[str]:
        data = entry.data
        took_s = data.get("seconds")
        if took_s is None and data.get("call_id") in self._asked:
            took_s = entry.at_s - self._asked[data["call_id"]]
        mark = "✗" if data["failed"] else "←"
        head = f"  {mark} {data.get('name') or 'malformed'}" + (f" · {took_s:.2f} s" if took_s is not None else "")
        return [head, *(f"    {line}" for line in self._lines(data["text"], cut=True))]

    def _summary(self, entry: Entry) -> list[str]:
        state = [f"  + {line}" for line in entry.data.get("state", [])]
        return [*self._block(f"summary {entry.data.get('number', '')}", entry.data["text"], cut=False), *state]

    def _edit(self, entry: Entry) -> list[str]:
        data = entry.data
        return [f"  {data['kind']} {data['path']}: +{data['added']} -{data['removed']} lines"]

    def _foreign(self, entry: Entry) -> list[str]:
        row = entry.data.get("foreign", {})
        return [f"foreign: {row.get('type', row.get('kind', ''))} {row.get('subtype', '')}".rstrip()]

    def _counters(self, entry: Entry) -> list[str]:
        return self.counters(entry.data["counters"])

    @staticmethod
    def counters(found: dict[str, float]) -> list[str]:
        """Those that are not nothing."""
        counters = [f"{name} {value:g}" for name, value in found.items() if value]
        return [f"counters: {', '.join(counters)}"]

    def _end(self, entry: Entry) -> list[str]:
        seconds = ", ".join(f"{name} {value:.2f} s" for name, value in entry.data.get("seconds", {}).items())
        return self._block(
            f"end: {entry.data['reason']}" + (f" · {seconds}" if seconds else ""), entry.data.get("message", "")
        )

    def _other(self, entry: Entry) -> list[str]:
        return [f"{entry.type}: {self._brief(entry.data)}"]

    def _block(self, head: str, text: str, *, cut: bool = False) -> list[str]:
        """`head: text`, or the text below if it has several lines."""
        lines = self._lines(text, cut=cut)
        if len(lines) <= 1:
            return [f"{head}: {lines[0]}" if lines else head]
        return [f"{head}:", *(f"  {line}" for line in lines)]

    def _lines(self, text: str, *, cut: bool) -> list[str]:
        lines = text.split("\n") if text else []
        if self.full or not cut:
            return lines
        shown = [line if len(line) <= SHOWN_CHARS else f"{line[: SHOWN_CHARS - 1]}…" for line in lines[:SHOWN_LINES]]
        return shown + (
            [f"… {len(lines) - SHOWN_LINES} more lines; --full shows them"] if len(lines) > SHOWN_LINES else []
        )

    def _brief(self, data: dict[str, Any]) -> str:
        """`key=value` pairs on one line, short enough for a terminal unless all was asked for."""
        text = " ".join(f"{key}={value!r}" for key, value in data.items() if value not in ("", None, [], {}))
        return text if self.full or len(text) <= SHOWN_CHARS else f"{text[: SHOWN_CHARS - 1]}…"


def clean(text: str) -> str:
    """Text that a terminal shows and does not obey: control characters and lone surrogates as `\\x1b`."""
    return "".join(c if c == "\t" or c.isprintable() else repr(c)[1:-1] for c in text)
