"""The chat formats of Microsoft's Phi: Phi-3 and 3.5, Phi-4, and Phi-4-mini.

The templates of Phi-3, Phi-3.5 and Phi-4 have no tools: their calls have the Hermes form. Phi-4-mini takes tools as a JSON list between markers
in the system prompt. Its template writes no calls, but its tokenizer has markers for them:

    <|tool_call|>[{"name": "read_file", "arguments": {"path": "a.py"}}]<|/tool_call|>

Several calls are one list, as Ollama's template for the model writes them. How results are written is published nowhere: they follow the marker
that the tokenizer has for them, as messages of the role `tool_response`.
"""

from __future__ import annotations

from collections.abc import Sequence

from renderers import ParsedToolCall, ToolCallParseStatus

from etude.agent.chat.hermes import ChatML
from etude.agent.chat.text_format import Row, TextFormat, marked_blocks, read_calls, written_json

OPEN, CLOSE = "<|tool_call|>", "<|/tool_call|>"


class Phi35(ChatML):
    """Phi-3-mini and Phi-3.5. Their tokenizer drops the blanks behind a marker."""

    generation = "<|assistant|>\n"
    end = "<|end|>"

    def message(self, role: str, text: str) -> str:
        return f"<|{role}|>\n{text}<|end|>\n"


class Phi4(ChatML):
    """Phi-4: ChatML with a marker in place of the line break."""

    generation = "<|im_start|>assistant<|im_sep|>"
    after = ""

    def message(self, role: str, text: str) -> str:
        return f"<|im_start|>{role}<|im_sep|>{text}<|im_end|>"


class Phi4Mini(TextFormat):
    """Phi-4-mini-instruct."""

    generation = "<|assistant|>"
    end = "<|end|>"
    stops = ("<|endoftext|>",)

    def opening(self, rows: Sequence[Row], tools: Sequence[Row]) -> tuple[str, Sequence[Row]]:
        first = rows[0]["role"] == "system"
        text = rows[0]["content"] if first else ""
        if tools:
            text += f"<|tool|>{written_json([tool['function'] for tool in tools])}<|/tool|>"
        return self.message("system", text) if first or tools else "", rows[1:] if first else rows

    def block(self, rows: Sequence[Row]) -> str:
        role = rows[0]["role"]
        return self.message("tool_response" if role == "tool" else role, rows[0]["content"])

    def message(self, role: str, text: str) -> str:
        """A message behind the marker of its role."""
        return f"<|{role}|>{text}<|end|>"

    def turn(self, row: Row) -> str:
        calls = [
            {"name": call["function"]["name"], "arguments": call["function"]["arguments"]}
            for call in row.get("tool_calls", ())
        ]
        return row["content"] + (f"{OPEN}{written_json(calls)}{CLOSE}" if calls else "")

    def calls(self, ids: list[int]) -> list[ParsedToolCall]:
        calls: list[ParsedToolCall] = []
        for text, place, closed in marked_blocks(self.tokenizer, ids, OPEN, CLOSE):
            block = read_calls(text, place)
            for call in block if not closed else ():
                call.status = ToolCallParseStatus.UNCLOSED_BLOCK
            calls += block
        return calls
