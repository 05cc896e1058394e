"""The chat format of Liquid's LFM2: ChatML, with calls as a list of Python's calls between marker tokens.

    <|tool_call_start|>[read_file(path='a.py', limit=20), list_todos()]<|tool_call_end|>

Text is quoted as in Python, other values are written as Python's constants or as JSON. The first revision of the published template drops the
calls of earlier turns, a later one writes them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from renderers import ParsedToolCall, ToolCallParseStatus

from etude.agent.chat.hermes import ChatML
from etude.agent.chat.text_format import Row, marked_blocks, written_json

OPEN, CLOSE = "<|tool_call_start|>", "<|tool_call_end|>"
DEEPEST = 100  # values within values
_WORD = re.compile(r"[^\s()\[\]{}=,:'\"]+")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
_QUOTED = re.compile(r"'((?:[^'\\]|\\.)*)'", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|.)", re.DOTALL)
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\", "'": "'", '"': '"'}
_CONSTANTS = {"True": True, "False": False, "None": None, "true": True, "false": False, "null": None}


class LFM2(ChatML):
    """LFM2, dense and with experts. A result is a turn of the role `tool`."""

    def opening(self, rows: Sequence[Row], tools: Sequence[Row]) -> tuple[str, Sequence[Row]]:
        first = rows[0]["role"] == "system"
        system = rows[0]["content"] if first else ""
        if tools:
            listed = ", ".join(map(written_json, tools))
            system += ("\n" if system else "") + f"List of tools: <|tool_list_start|>[{listed}]<|tool_list_end|>"
        return "<|startoftext|>" + (self.message("system", system) if system else ""), rows[1:] if first else rows

    def joins(self, before: Row, row: Row) -> bool:
        return False

    def block(self, rows: Sequence[Row]) -> str:
        role, text = rows[0]["role"], rows[0]["content"]
        return self.message(role, f"<|tool_response_start|>{text}<|tool_response_end|>" if role == "tool" else text)

    def turn(self, row: Row) -> str:
        calls = ", ".join(map(_written, row.get("tool_calls", ())))
        return row["content"] + (f"{OPEN}[{calls}]{CLOSE}" if calls else "")

    def calls(self, ids: list[int]) -> list[ParsedToolCall]:
        calls: list[ParsedToolCall] = []
        for text, place, closed in marked_blocks(self.tokenizer, ids, OPEN, CLOSE):
            reader = CallReader(text)
            status = ToolCallParseStatus.OK if closed else ToolCallParseStatus.UNCLOSED_BLOCK
            try:
                calls += [
                    ParsedToolCall(raw=text, name=name, arguments=given, token_span=place, status=status)
                    for name, given in reader.calls()
                ]
            except ValueError:
                status = ToolCallParseStatus.INVALID_JSON if closed else status
                calls.append(ParsedToolCall(raw=text, name=reader.name, token_span=place, status=status))
        return calls


def _written(call: Row) -> str:
    function = call["function"]
    return f"{function['name']}({', '.join(f'{key}={_value(value)}' for key, value in function['arguments'].items())})"


def _value(value: Any) -> str:
    if isinstance(value, str):
        for plain, escaped in (("\\", "\\\\"), ("'", "\\'"), ("\n", "\\n"), ("\r", "\\r")):
            value = value.replace(plain, escaped)
        return f"'{value}'"
    return written_json(value) if isinstance(value, dict | list) else str(value)


class CallReader:
    """Reads a list of calls from front to back. `name` is the last name that was read, for the report of what does not read."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self.name: str | None = None

    def calls(self) -> list[tuple[str, dict[str, Any]]]:
        """Names and arguments. Raises ValueError if the text is anything but a list of calls."""
        self._take("[")
        calls = [self._call()]
        while self._found(","):
            calls.append(self._call())
        self._take("]")
        if self._next():
            raise ValueError("text follows the list of calls")
        return calls

    def _call(self) -> tuple[str, dict[str, Any]]:
        self.name = name = self._match(_WORD)
        self._take("(")
        given: dict[str, Any] = {}
        while not self._found(")"):
            if given:
                self._take(",")
            key = self._match(_WORD)
            self._take("=")
            if key in given:
                raise ValueError(f"{key} is given twice")
            given[key] = self._value(0)
        return name, given

    def _value(self, depth: int) -> Any:
        if depth > DEEPEST:
            raise ValueError("values are nested too deep")
        following = self._next()
        if following == "'":
            return _ESCAPE.sub(_unescaped, self._match(_QUOTED)[1:-1])
        if following == '"':
            text, self._at = json.JSONDecoder(strict=False).raw_decode(self._text, self._at)
            return text
        if following == "[":
            return self._list(depth + 1)
        if following == "{":
            return self._object(depth + 1)
        if following and following in "-0123456789":
            number = self._match(_NUMBER)
            return int(number) if number.lstrip("-").isdigit() else float(number)
        word = self._match(_WORD)
        if word not in _CONSTANTS:
            raise ValueError(f"{word} is no value")
        return _CONSTANTS[word]

    def _list(self, depth: int) -> list[Any]:
        self._take("[")
        values: list[Any] = []
        while not self._found("]"):
            if values:
                self._take(",")
            values.append(self._value(depth))
        return values

    def _object(self, depth: int) -> dict[str, Any]:
        self._take("{")
        values: dict[str, Any] = {}
        while not self._found("}"):
            if values:
                self._take(",")
            key = self._value(depth)
            if not isinstance(key, str):
                raise ValueError(f"{key!r} is no name")
            self._take(":")
            values[key] = self._value(depth)
        return values

    def _next(self) -> str:
        """The next character that is no blank; empty at the end."""
        while self._at < len(self._text) and self._text[self._at].isspace():
            self._at += 1
        return self._text[self._at : self._at + 1]

    def _found(self, mark: str) -> bool:
        found = self._next() == mark
        self._at += found
        return found

    def _take(self, mark: str) -> None:
        if not self._found(mark):
            raise ValueError(f"{mark} is missing at character {self._at}")

    def _match(self, form: re.Pattern[str]) -> str:
        self._next()
        found = form.match(self._text, self._at)
        if found is None:
            raise ValueError(f"character {self._at} begins no word, number or text")
        self._at = found.end()
        return found[0]


def _unescaped(found: re.Match[str]) -> str:
    word = found[1]
    return chr(int(word[1:], 16)) if len(word) > 1 else _ESCAPED.get(word, found[0])
