"""Calls in the Hermes form, and the formats that use it: ChatML (Qwen2.5, Qwen3-2507, SmolLM2) and those whose templates have no tools.

    <tool_call>
    {"name": "read_file", "arguments": {"path": "a.py"}}
    </tool_call>

Where the tokenizer has `<tool_call>` as a token, a call begins with that token and text that spells it is text. Elsewhere the spelling
counts, if a JSON object follows it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from renderers import ParsedToolCall, ToolCallParseStatus

from etude.agent.chat.hub_tokenizer import HubTokenizer
from etude.agent.chat.text_format import Row, TextFormat, json_end, marked_blocks, read_call, token_span, written_json

OPEN, CLOSE = "<tool_call>", "</tool_call>"
_SPELT = re.compile(r"<tool_call>\s*(?=\{)")
_CLOSED = re.compile(r"\s*</tool_call>")
QWEN_WORDS = (
    "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
    "You are provided with function signatures within <tools></tools> XML tags:\n<tools>",
    "\n</tools>\n\nFor each function call, return a json object with function name and arguments within "
    "<tool_call></tool_call> XML tags:\n<tool_call>\n"
    '{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>',
)
# The date is fixed: the same messages are the same ids on every day.
_SMOL_HEAD = "## Metadata\n\nKnowledge Cutoff Date: June 2025\nToday Date: 05 August 2025\nReasoning Mode: /no_think\n\n## Custom Instructions\n\n"
_SMOL_DEFAULT = "You are a helpful AI assistant named SmolLM, trained by Hugging Face."
_SMOL_WORDS = (
    "### Tools\n\nYou may call one or more functions to assist with the user query.\n"
    "You are provided with function signatures within <tools></tools> XML tags:\n\n<tools>\n",
    "</tools>\n\nFor each function call, return a json object with function name and arguments within <tool_call></tool_call> XML tags:\n"
    '<tool_call>\n{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>',
)
_FALCON_WORDS = (
    "You are a function calling AI model. You are provided with function signature within <tools> </tools> XML tags. You may call one or more "
    "functions to assist with the user query. Don't make assumptions about what values to plug into functions.\n<tools>\n",
    "\n</tools>\nFor each function call, return a json object with function name and arguments within <tool_call> </tool_call> tags with the "
    "following schema:\n<tool_call>\n{'arguments': <args-dict>, 'name': <function-name>}\n</tool_call>\n",
)


def with_declared(system: str, tools: Sequence[Row], words: tuple[str, str] = QWEN_WORDS) -> str:
    """The system prompt with the tools behind it, between the given words. Those of Qwen's templates are the default."""
    if not tools:
        return system
    declared = "".join(f"\n{written_json(tool)}" for tool in tools)
    return (f"{system}\n\n" if system else "") + words[0] + declared + words[1]


def written_turn(row: Row, text: str) -> str:
    """Text and calls of an assistant message."""
    written = [
        f'{OPEN}\n{{"name": "{call["function"]["name"]}", "arguments": {written_json(call["function"]["arguments"])}}}\n{CLOSE}'
        for call in row.get("tool_calls", ())
    ]
    return "\n".join([text, *written] if text else written)


def written_result(row: Row) -> str:
    """The result of a call."""
    return f"<tool_response>\n{row['content']}\n</tool_response>"


def hermes_calls(tokenizer: HubTokenizer, ids: list[int]) -> list[ParsedToolCall]:
    """The calls of a turn."""
    if OPEN not in tokenizer.added or CLOSE not in tokenizer.added:
        return _spelt_calls(tokenizer, ids)
    calls: list[ParsedToolCall] = []
    for text, place, closed in marked_blocks(tokenizer, ids, OPEN, CLOSE):
        call = read_call(text, place)
        if not closed:
            call.status = ToolCallParseStatus.UNCLOSED_BLOCK
        calls.append(call)
    return calls


def _spelt_calls(tokenizer: HubTokenizer, ids: list[int]) -> list[ParsedToolCall]:
    text = tokenizer.decode(ids)
    calls: list[ParsedToolCall] = []
    found = _SPELT.search(text)
    while found:
        end = json_end(text, found.end())
        closing = text.find(CLOSE, found.end()) if end is None else end
        closed = _CLOSED.match(text, closing) if closing >= 0 else None
        stop = closed.end() if closed else len(text)
        body = text[found.end() : closed.start() if closed else len(text)].strip()
        call = read_call(body, token_span(tokenizer, ids, found.start(), stop))
        if closed is None:
            call.status = ToolCallParseStatus.UNCLOSED_BLOCK
        calls.append(call)
        found = _SPELT.search(text, stop)
    return calls


class ChatML(TextFormat):
    """Roles between `<|im_start|>` and `<|im_end|>`. Results of parallel calls share a turn of the user."""

    generation = "<|im_start|>assistant\n"
    end = "<|im_end|>"
    after = "\n"
    stops = ("<|endoftext|>",)
    default_system: str | None = None

    def opening(self, rows: Sequence[Row], tools: Sequence[Row]) -> tuple[str, Sequence[Row]]:
        first = rows[0]["role"] == "system"
        system = rows[0]["content"] if first else self.default_system
        if system is None and not tools:
            return "", rows
        text = with_declared(system or "", tools)
        return self.message("system", text), rows[1:] if first else rows

    def joins(self, before: Row, row: Row) -> bool:
        return before["role"] == row["role"] == "tool"

    def block(self, rows: Sequence[Row]) -> str:
        role, text = rows[0]["role"], rows[0]["content"]
        if role == "tool":
            role, text = "user", "\n".join(map(written_result, rows))
        return self.message(role, text)

    def message(self, role: str, text: str) -> str:
        """A message between its markers."""
        return f"<|im_start|>{role}\n{text}<|im_end|>\n"

    def turn(self, row: Row) -> str:
        return written_turn(row, row["content"])

    def calls(self, ids: list[int]) -> list[ParsedToolCall]:
        return hermes_calls(self.tokenizer, ids)


class Qwen25(ChatML):
    """Qwen2.5 and Qwen2.5-Coder."""

    default_system = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."


class Qwen2(ChatML):
    """Qwen2. Its template has no tools."""

    default_system = "You are a helpful assistant."


class SmolLM2(ChatML):
    """SmolLM2-Instruct. Its template has no tools."""

    default_system = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"


class SmolLM3(ChatML):
    """SmolLM3 without thinking, which is its template's `enable_thinking=False`. The template leaves the system turn open where there are no
    tools. A result is a turn of the user."""

    generation = "<|im_start|>assistant\n<think>\n\n</think>\n"
    stops = ("<|end_of_text|>",)

    def opening(self, rows: Sequence[Row], tools: Sequence[Row]) -> tuple[str, Sequence[Row]]:
        first = rows[0]["role"] == "system"
        system = (rows[0]["content"].rstrip() if first else "") or _SMOL_DEFAULT
        head = f"<|im_start|>system\n{_SMOL_HEAD}{system}\n\n"
        if tools:
            declared = "".join(f"{written_json(tool['function'])}\n" for tool in tools)
            head += f"{_SMOL_WORDS[0]}{declared}{_SMOL_WORDS[1]}\n\n<|im_end|>\n"
        return head, rows[1:] if first else rows

    def joins(self, before: Row, row: Row) -> bool:
        return False

    def block(self, rows: Sequence[Row]) -> str:
        return self.message("user", rows[0]["content"])

    def turn(self, row: Row) -> str:
        return written_turn(row, row["content"].lstrip("\n"))


class FalconH1(ChatML):
    """Falcon-H1. Its template leaves the system turn open behind tools, and writes no calls. A result is a turn of the role `tool`."""

    stops = ("<|end_of_text|>",)

    def opening(self, rows: Sequence[Row], tools: Sequence[Row]) -> tuple[str, Sequence[Row]]:
        first = rows[0]["role"] == "system"
        system = self.message("system", rows[0]["content"]) if first else ""
        if tools:
            declared = "".join(f"[{written_json(tool)}]" for tool in tools)
            before = f"{rows[0]['content']}\n\n" if first else ""
            system = f"<|im_start|>system\n{before}{_FALCON_WORDS[0]}{declared}{_FALCON_WORDS[1]}"
        return f"<|begin_of_text|>{system}", rows[1:] if first else rows

    def joins(self, before: Row, row: Row) -> bool:
        return False

    def block(self, rows: Sequence[Row]) -> str:
        return self.message(rows[0]["role"], rows[0]["content"])


class Cohere(ChatML):
    """Aya Expanse and Command R, by the templates without tools."""

    generation = "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>"
    end = "<|END_OF_TURN_TOKEN|>"
    after = ""
    stops = ()

    def opening(self, rows: Sequence[Row], tools: Sequence[Row]) -> tuple[str, Sequence[Row]]:
        first = rows[0]["role"] == "system"
        system = with_declared(rows[0]["content"] if first else "", tools)
        head = f"<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>{system}<|END_OF_TURN_TOKEN|>" if first or tools else ""
        return f"<BOS_TOKEN>{head}", rows[1:] if first else rows

    def message(self, role: str, text: str) -> str:
        return f"<|START_OF_TURN_TOKEN|><|{role.upper()}_TOKEN|>{text.strip()}<|END_OF_TURN_TOKEN|>"

    def turn(self, row: Row) -> str:
        return written_turn(row, row["content"].strip())


class Gemma3(TextFormat):
    """Gemma 3 has turns of the user and of the model, which alternate. The system prompt precedes the first text of the user; its template
    has no tools."""

    generation = "<start_of_turn>model\n"
    end = "<end_of_turn>"
    after = "\n"
    stops = ("<eos>",)

    def opening(self, rows: Sequence[Row], tools: Sequence[Row]) -> tuple[str, Sequence[Row]]:
        first = rows[0]["role"] == "system"
        system = with_declared(rows[0]["content"] if first else "", tools)
        rows = rows[1:] if first else rows
        if not system:
            return "<bos>", rows
        if not rows or rows[0]["role"] == "assistant":
            rows = [{"role": "user", "content": ""}, *rows]
        return "<bos>", [{**rows[0], "prefix": f"{system}\n\n"}, *rows[1:]]

    def joins(self, before: Row, row: Row) -> bool:
        return "assistant" not in (before["role"], row["role"])

    def block(self, rows: Sequence[Row]) -> str:
        texts = [written_result(row) if row["role"] == "tool" else row["content"].strip() for row in rows]
        return f"<start_of_turn>user\n{rows[0].get('prefix', '')}" + "\n".join(texts) + "<end_of_turn>\n"

    def turn(self, row: Row) -> str:
        return written_turn(row, row["content"].strip())

    def calls(self, ids: list[int]) -> list[ParsedToolCall]:
        return hermes_calls(self.tokenizer, ids)
