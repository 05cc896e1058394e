"""The chat formats of IBM's Granite 3.0 to 4.1: roles between marker tokens, each message closed by the end of text.

3.0's template has no turns with calls that a client could write: its calls have the Hermes form. 3.1, 3.2 and 3.3 declare tools as a message
with a role for them, and ask for calls as `<|tool_call|>` and a JSON list. Their templates drop the calls of earlier turns. Here they are
written as they were sampled, and results as messages of the role `tool`, as the templates write them.

4.0 and 4.1 declare tools in the system prompt and write calls and results in the Hermes form.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from renderers import ParsedToolCall

from etude.agent.chat.hermes import ChatML, with_declared, written_result
from etude.agent.chat.text_format import Row, read_calls, written_json

# The template's own date is today's: a fixed one keeps the same messages the same ids on every day.
DATE = "August 05, 2025"
CALL = "<|tool_call|>"
_IF_NEEDED = (
    "When a tool is required to answer the user's query, respond {only}with <|tool_call|> followed by a JSON list of tools used. If a tool does "
    "not exist in the provided list of tools, notify the user that you do not have the ability to fulfill the request."
)
_FOUR_WORDS = (
    "You are a helpful assistant with access to the following tools. You may call one or more tools to assist with the user query.\n\n"
    "You are provided with function signatures within <tools></tools> XML tags:\n<tools>",
    "\n</tools>\n\nFor each tool call, return a json object with function name and arguments within <tool_call></tool_call> XML tags:\n"
    '<tool_call>\n{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>. If a tool does not exist in the provided list of '
    "tools, notify the user that you do not have the ability to fulfill the request.",
)


class Granite(ChatML):
    """Granite 3.0: ChatML with other markers."""

    generation = "<|start_of_role|>assistant<|end_of_role|>"
    end = "<|end_of_text|>"
    stops = ()

    def message(self, role: str, text: str) -> str:
        return f"<|start_of_role|>{role}<|end_of_role|>{text}<|end_of_text|>\n"


class Granite31(Granite):
    """Granite 3.1 and 3.2, without their mode of thinking."""

    about = f"Knowledge Cutoff Date: April 2024.\nToday's Date: {DATE}.\nYou are Granite, developed by IBM."
    calling = " You are a helpful AI assistant with access to the following tools. " + _IF_NEEDED.format(only="")
    tools_role = "tools"

    def opening(self, rows: Sequence[Row], tools: Sequence[Row]) -> tuple[str, Sequence[Row]]:
        first = rows[0]["role"] == "system"
        default = self.about + (self.calling if tools else " You are a helpful AI assistant.")
        system = self.message("system", rows[0]["content"] if first else default)
        declared = json.dumps(list(tools), indent=4, ensure_ascii=False)
        return system + (self.message(self.tools_role, declared) if tools else ""), rows[1:] if first else rows

    def joins(self, before: Row, row: Row) -> bool:
        return False

    def block(self, rows: Sequence[Row]) -> str:
        return self.message(rows[0]["role"], rows[0]["content"])

    def turn(self, row: Row) -> str:
        calls = [
            {"name": call["function"]["name"], "arguments": call["function"]["arguments"]}
            for call in row.get("tool_calls", ())
        ]
        return row["content"] + (CALL + written_json(calls) if calls else "")

    def calls(self, ids: list[int]) -> list[ParsedToolCall]:
        begins = [i for i, token in enumerate(ids) if token == self.tokenizer.added[CALL]]
        places = zip(begins, [*begins, len(ids)][1:], strict=True)
        return [
            call
            for start, stop in places
            for call in read_calls(self.tokenizer.decode(ids[start + 1 : stop]).strip(), (start, stop))
        ]


class Granite33(Granite31):
    """Granite 3.3, without its mode of thinking."""

    about = f" Knowledge Cutoff Date: April 2024.\n Today's Date: {DATE}. You are Granite, developed by IBM."
    calling = " You are a helpful assistant with access to the following tools. " + _IF_NEEDED.format(only="only ")
    tools_role = "available_tools"


class Granite4(Granite):
    """Granite 4.0 and 4.1, dense and hybrid."""

    def opening(self, rows: Sequence[Row], tools: Sequence[Row]) -> tuple[str, Sequence[Row]]:
        first = rows[0]["role"] == "system"
        system = with_declared(rows[0]["content"] if first else "", tools, _FOUR_WORDS) or self.default_system
        return self.message("system", system) if system else "", rows[1:] if first else rows

    def block(self, rows: Sequence[Row]) -> str:
        if rows[0]["role"] == "tool":
            return self.message("user", "".join(f"\n{written_result(row)}" for row in rows))
        return super().block(rows)


class Granite4Default(Granite4):
    """Granite 4.0 with the system prompt that its template writes where there is none."""

    default_system = "You are a helpful assistant. Please ensure responses are professional, accurate, and safe."
