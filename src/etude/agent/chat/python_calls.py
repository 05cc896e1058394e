"""The chat formats whose calls are written as in Python: LFM2 and Olmo 3, both with the turns of ChatML.

    <|tool_call_start|>[read_file(path='a.py', limit=20), list_todos()]<|tool_call_end|>        LFM2
    <function_calls>read_file(path="a.py", limit=20)                                           Olmo 3, a call a line
    list_todos()</function_calls>

LFM2 quotes text as in Python and writes other values as Python's constants or as JSON. Olmo 3 writes values as JSON. Either is read in both. The
first revision of LFM2's template drops the calls of earlier turns, a later one writes them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from renderers import ParsedToolCall, ToolCallParseStatus

from etude.agent.chat.hermes import ChatML
from etude.agent.chat.text_format import Block, Row, marked_blocks, written_json

OPEN, CLOSE = "<|tool_call_start|>", "<|tool_call_end|>"
_OLMO_IDLE = "You do not currently have access to any functions. <functions></functions>"
_OLMO_CALLING = (
    "You are provided with function signatures within <functions></functions> XML tags. You may call one or more functions to assist with the "
    "user query. Output any function calls within <function_calls></function_calls> XML tags. Do not make assumptions about what values to plug "
    "into functions."
)
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
        calls = ", ".join(_written(call, _quoted) for call in row.get("tool_calls", ()))
        return row["content"] + (f"{OPEN}[{calls}]{CLOSE}" if calls else "")

    def calls(self, ids: list[int]) -> list[ParsedToolCall]:
        return _read(marked_blocks(self.tokenizer, ids, OPEN, CLOSE), CallReader.listed)


def _read(
    blocks: Sequence[Block], read: Callable[[CallReader], list[tuple[str, dict[str, Any]]]]
) -> list[ParsedToolCall]:
    calls: list[ParsedToolCall] = []
    for text, place, closed in blocks:
        reader = CallReader(text)
        status = ToolCallParseStatus.OK if closed else ToolCallParseStatus.UNCLOSED_BLOCK
        try:
            calls += [
                ParsedToolCall(raw=text, name=name, arguments=given, token_span=place, status=status)
                for name, given in read(reader)
            ]
        except ValueError:
            status = ToolCallParseStatus.INVALID_JSON if closed else status
            calls.append(ParsedToolCall(raw=text, name=reader.name, token_span=place, status=status))
    return calls


def _written(call: Row, value: Callable[[Any], str]) -> str:
    function = call["function"]
    return f"{function['name']}({', '.join(f'{key}={value(given)}' for key, given in function['arguments'].items())})"


def _quoted(value: Any) -> str:
    if isinstance(value, str):
        for plain, escaped in (("\\", "\\\\"), ("'", "\\'"), ("\n", "\\n"), ("\r", "\\r")):
            value = value.replace(plain, escaped)
        return f"'{value}'"
    return written_json(value) if isinstance(value, dict | list) else str(value)


class Olmo3(ChatML):
    """Olmo 3 Instruct. A result is a turn of the role `environment`."""

    about = "You are a helpful function-calling AI assistant. "

    def opening(self, rows: Sequence[Row], tools: Sequence[Row]) -> tuple[str, Sequence[Row]]:
        first = rows[0]["role"] == "system"
        declared = f"<functions>{written_json(list(tools))}</functions>" if tools else ""
        if first:
            return self.message("system", rows[0]["content"] + declared), rows[1:]
        return self.message("system", self.about + (_OLMO_CALLING + declared if tools else _OLMO_IDLE)), rows

    def joins(self, before: Row, row: Row) -> bool:
        return False

    def block(self, rows: Sequence[Row]) -> str:
        role = rows[0]["role"]
        return self.message("environment" if role == "tool" else role, rows[0]["content"])

    def turn(self, row: Row) -> str:
        calls = "\n".join(_written(call, written_json) for call in row.get("tool_calls", ()))
        return row["content"] + (f"<function_calls>{calls}</function_calls>" if calls else "")

    def calls(self, ids: list[int]) -> list[ParsedToolCall]:
        return _read(marked_blocks(self.tokenizer, ids, "<function_calls>", "</function_calls>"), CallReader.lines)


class Olmo31(Olmo3):
    """Olmo 3.1 Instruct, whose default system prompt names the model."""

    about = (
        "You are Olmo, a helpful AI assistant built by Ai2. Your date cutoff is December 2024, and your model weights are available at "
        "https://huggingface.co/allenai. "
    )


class CallReader:
    """Reads calls from front to back. `name` is the last name that was read, for the report of what does not read."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self.name: str | None = None

    def lines(self) -> list[tuple[str, dict[str, Any]]]:
        """Names and arguments of calls one after another. Raises ValueError if the text is anything else."""
        calls = [self._call()]
        while self._next():
            calls.append(self._call())
        return calls

    def listed(self) -> list[tuple[str, dict[str, Any]]]:
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
