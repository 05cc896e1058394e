"""The chat formats of Llama 3 and of Mistral.

Llama 3 writes headers between marker tokens, and calls as bare JSON from 3.1 on.

The templates of 3.1 and 3.2 write one call a turn and no text in front of it. Several calls are separated by semicolons, as vLLM reads them,
and text precedes them on lines of its own. The models may write `<|python_tag|>` in front of a call.

Mistral's tokenizers from version 13 on (Devstral) write `[INST]` turns, and calls as `[TOOL_CALLS]NAME[ARGS]{...}`. Tools are declared in front
of the first message of the user, so that a session only grows. Earlier versions declare them in front of the last one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from renderers import ParsedToolCall, ToolCallParseStatus

from etude.agent.chat.hermes import hermes_calls, with_declared, written_result, written_turn
from etude.agent.chat.text_format import Row, TextFormat, json_end, read_call, token_span, written_json
from etude.core.trace.plain_json import parse

# The templates' own date where the caller gives none: the same messages are the same ids on every day.
DATE = "26 Jul 2024"
_PYTHON = "<|python_tag|>"
_CALL = re.compile(r"(?:\A|(?<=\n)|<\|python_tag\|>)\s*(?=\{\s*\"(?:name|type)\")")
_NEXT = re.compile(r"\s*;\s*(?:<\|python_tag\|>)?(?=\{)")
_IN_USER = (
    "Given the following functions, please respond with a JSON for a function call with its proper arguments that best answers the "
    "given prompt.\n\n"
    'Respond in the format {"name": function name, "parameters": dictionary of argument name and its value}.Do not use variables.\n\n'
)


def _header(role: str) -> str:
    return f"<|start_header_id|>{role}<|end_header_id|>\n\n"


class Llama3(TextFormat):
    """Llama 3. Its template has no tools."""

    generation = _header("assistant")
    end = "<|eot_id|>"
    stops = ("<|end_of_text|>", "<|eom_id|>")

    def opening(self, rows: Sequence[Row], tools: Sequence[Row]) -> tuple[str, Sequence[Row]]:
        first = rows[0]["role"] == "system"
        system = with_declared(rows[0]["content"].strip() if first else "", tools)
        head = f"{_header('system')}{system}<|eot_id|>" if first or tools else ""
        return f"<|begin_of_text|>{head}", rows[1:] if first else rows

    def block(self, rows: Sequence[Row]) -> str:
        role, text = rows[0]["role"], rows[0]["content"].strip()
        if role == "tool":
            role, text = "user", "\n".join(map(written_result, rows))
        return f"{_header(role)}{text}<|eot_id|>"

    def joins(self, before: Row, row: Row) -> bool:
        return before["role"] == row["role"] == "tool"

    def turn(self, row: Row) -> str:
        return written_turn(row, row["content"].strip())

    def calls(self, ids: list[int]) -> list[ParsedToolCall]:
        return hermes_calls(self.tokenizer, ids)


class Llama31(Llama3):
    """Llama 3.1, 3.2 and 3.3. Tools are declared in the first message of the user."""

    def opening(self, rows: Sequence[Row], tools: Sequence[Row]) -> tuple[str, Sequence[Row]]:
        first = rows[0]["role"] == "system"
        system = rows[0]["content"].strip() if first else ""
        rows = rows[1:] if first else rows
        declared = "Environment: ipython\n" if tools else ""
        dates = f"Cutting Knowledge Date: December 2023\nToday Date: {DATE}\n\n"
        head = f"<|begin_of_text|>{_header('system')}{declared}{dates}{system}<|eot_id|>"
        if not tools:
            return head, rows
        if not rows or rows[0]["role"] != "user":
            raise ValueError("tools are declared in the first message of the user: put one behind the system prompt")
        functions = "".join(json.dumps(tool, indent=4, ensure_ascii=False) + "\n\n" for tool in tools)
        return head + f"{_header('user')}{_IN_USER}{functions}{rows[0]['content'].strip()}<|eot_id|>", rows[1:]

    def joins(self, before: Row, row: Row) -> bool:
        return False

    def block(self, rows: Sequence[Row]) -> str:
        if rows[0]["role"] == "tool":
            return f"{_header('ipython')}{written_json(rows[0]['content'])}<|eot_id|>"
        return super().block(rows)

    def turn(self, row: Row) -> str:
        text = row["content"].strip()
        calls = "; ".join(
            f'{{"name": "{call["function"]["name"]}", "parameters": {written_json(call["function"]["arguments"])}}}'
            for call in row.get("tool_calls", ())
        )
        return f"{text}\n{calls}" if text and calls else text or calls

    def calls(self, ids: list[int]) -> list[ParsedToolCall]:
        """A turn ends with its calls: JSON that does not read, or text behind it, makes the first one malformed."""
        text = self.tokenizer.decode(ids)
        for found in _CALL.finditer(text):
            calls = self._from(text, found.end(), ids)
            if calls or found.start() == 0 or found[0].startswith(_PYTHON):
                return calls or [
                    read_call(text[found.end() :], token_span(self.tokenizer, ids, found.start(), len(text)))
                ]
        return []

    def _from(self, text: str, start: int, ids: list[int]) -> list[ParsedToolCall]:
        """The calls from `start` to the end of the turn; none if anything else is there."""
        calls: list[ParsedToolCall] = []
        while (end := json_end(text, start)) is not None:
            calls.append(read_call(text[start:end], token_span(self.tokenizer, ids, start, end), "parameters"))
            if not text[end:].strip():
                return calls
            following = _NEXT.match(text, end)
            if following is None:
                return []
            start = following.end()
        return []


class Mistral(TextFormat):
    """A turn of the assistant follows `[/INST]` or `[/TOOL_RESULTS]` directly: the generation prompt is empty."""

    end = "</s>"

    def opening(self, rows: Sequence[Row], tools: Sequence[Row]) -> tuple[str, Sequence[Row]]:
        first = rows[0]["role"] == "system"
        head = f"[SYSTEM_PROMPT]{rows[0]['content']}[/SYSTEM_PROMPT]" if first else ""
        declared = f"[AVAILABLE_TOOLS]{written_json(list(tools))}[/AVAILABLE_TOOLS]" if tools else ""
        return f"<s>{head}{declared}", rows[1:] if first else rows

    def block(self, rows: Sequence[Row]) -> str:
        if rows[0]["role"] == "tool":
            return f"[TOOL_RESULTS]{rows[0]['content']}[/TOOL_RESULTS]"
        return f"[INST]{rows[0]['content']}[/INST]"

    def turn(self, row: Row) -> str:
        calls = (call["function"] for call in row.get("tool_calls", ()))
        return row["content"] + "".join(
            f"[TOOL_CALLS]{call['name']}[ARGS]{written_json(call['arguments'])}" for call in calls
        )

    def calls(self, ids: list[int]) -> list[ParsedToolCall]:
        begins = [i for i, token in enumerate(ids) if token == self.tokenizer.added["[TOOL_CALLS]"]]
        return [self._call(ids, at, after) for at, after in zip(begins, [*begins, len(ids)][1:], strict=True)]

    def _call(self, ids: list[int], at: int, after: int) -> ParsedToolCall:
        """The call that begins at `at`; the next one, or the end of the turn, is at `after`."""
        body, separator = ids[at + 1 : after], self.tokenizer.added["[ARGS]"]
        call = ParsedToolCall(raw=self.tokenizer.decode(body), token_span=(at, after))
        if separator not in body:
            call.status = ToolCallParseStatus.MALFORMED_STRUCTURE
            return call
        border = body.index(separator)
        call.name = self.tokenizer.decode(body[:border]).strip() or None
        try:
            call.arguments = parse(self.tokenizer.decode(body[border + 1 :]))
        except ValueError:
            call.status = ToolCallParseStatus.INVALID_JSON
        return call
