"""DeepSeek V3.1, which the `renderers` package lacks, and how the V3 line is given its tools.

V3.1 shares V3's markers and writes them in another way (its model card and template): a turn opens with the end of a thinking
that did not happen, a call is NAME and raw JSON, a result has no frame, and nothing is between results and the answer.

None of the V3 templates reads `tools`: the model card has the caller describe them behind the system prompt.
"""

from __future__ import annotations

import json
from typing import Any, Sequence

from renderers import ParsedResponse, ParsedToolCall, RenderedTokens, ToolCallParseStatus, trim_to_turn_close
from renderers.deepseek_v3 import DeepSeekV3Renderer

from etude.core.trace.plain_json import parse

_RULES = """
Where:
- `tool_call_name` must be an exact match to one of the available tools
- `tool_call_arguments` must be valid JSON that strictly follows the tool's Parameters Schema
- For multiple tool calls, chain them directly without separators or spaces
"""


def with_tools(rows: list[dict[str, Any]], tools: Sequence[dict[str, Any]], call: str) -> list[dict[str, Any]]:
    """The conversation with its tools described behind the system prompt; `call` is how one is written. The model card's
    words; what the tools say of themselves should be guarded already."""
    if not tools:
        return rows
    described = "".join(
        f"\n### {tool['function']['name']}\nDescription: {tool['function'].get('description', '')}\n\n"
        f"Parameters: {json.dumps(tool['function'].get('parameters', {}), ensure_ascii=False)}\n"
        for tool in tools
    )
    text = (
        f"## Tools\nYou have access to the following tools:\n{described}\n"
        f"IMPORTANT: ALWAYS adhere to this exact format for tool use:\n{call}\n{_RULES}"
    )
    if rows and rows[0]["role"] == "system":
        return [{**rows[0], "content": f"{rows[0]['content']}\n\n{text}"}, *rows[1:]]
    return [{"role": "system", "content": text}, *rows]


class DeepSeek31(DeepSeekV3Renderer):
    """Overrides what V3.1 writes in another way. Tools work without thinking only, says the card: turns have none."""

    def __init__(self, tokenizer: Any, config: Any) -> None:
        super().__init__(tokenizer, config)
        self._think_end = tokenizer.convert_tokens_to_ids("</think>")

    def render(self, messages: Any, *, tools: Any = None, add_generation_prompt: bool = False) -> RenderedTokens:
        rendered = super().render(messages, add_generation_prompt=add_generation_prompt)
        if add_generation_prompt and messages[-1]["role"] != "tool":
            rendered.token_ids.append(self._think_end)
        return rendered

    def bridge_to_next_turn(
        self, previous_prompt_ids: Any, previous_completion_ids: Any, new_messages: Any, *, tools: Any = None
    ) -> RenderedTokens | None:
        ends = {self._eos}
        held = trim_to_turn_close(previous_prompt_ids, previous_completion_ids, ends, synthesize_close=self._eos)
        if held is None or not new_messages:
            return None
        owners = [-1] * len(held)
        for i, message in enumerate(new_messages):
            if message["role"] == "assistant":
                return None
            text = self._encode(message["content"])
            if message["role"] == "tool":
                text = [self._tool_output_begin, *text, self._tool_output_end]
            else:
                text = [self._user_token, *text]
            held += text
            owners += [i] * len(text)
        if new_messages[-1]["role"] != "tool":
            held += [self._assistant_token, self._think_end]
            owners += [-1, -1]
        return RenderedTokens(
            token_ids=held, message_indices=owners, message_roles=[message["role"] for message in new_messages]
        )

    def parse_response(self, token_ids: Any, *, tools: Any = None, prompt_ids: Any = None) -> ParsedResponse:
        ids = token_ids[: token_ids.index(self._eos)] if self._eos in token_ids else list(token_ids)
        start = ids.index(self._tool_calls_begin) if self._tool_calls_begin in ids else len(ids)
        begins = [i for i in range(start, len(ids)) if ids[i] == self._tool_call_begin]
        calls = [self._parsed(ids, at, after) for at, after in zip(begins, [*begins[1:], len(ids)], strict=False)]
        if start < len(ids) and not calls:
            status = ToolCallParseStatus.MALFORMED_STRUCTURE
            raw = self._tokenizer.decode(ids[start:])
            calls.append(ParsedToolCall(raw=raw, token_span=(start, len(ids)), status=status))
        return ParsedResponse(content=self._tokenizer.decode(ids[:start]).strip(), tool_calls=calls)

    def _parsed(self, ids: list[int], at: int, after: int) -> ParsedToolCall:
        """The call that begins at `at`; the next one, or the end of the turn, comes at `after`."""
        closed = self._tool_call_end in ids[at:after]
        stop = ids.index(self._tool_call_end, at) if closed else after
        body = ids[at + 1 : stop]
        call = ParsedToolCall(raw=self._tokenizer.decode(body), token_span=(at, stop + closed))
        if self._tool_sep in body:
            border = body.index(self._tool_sep)
            call.name = self._tokenizer.decode(body[:border]).strip() or None
            try:
                call.arguments = parse(self._tokenizer.decode(body[border + 1 :]))
            except ValueError:
                call.status = ToolCallParseStatus.INVALID_JSON
        else:
            call.status = ToolCallParseStatus.MALFORMED_STRUCTURE
        if not closed:
            call.status = ToolCallParseStatus.UNCLOSED_BLOCK
        return call

    def _render_assistant(
        self, msg: Any, msg_idx: int, messages: Any, *, emit_special: Any, emit_text: Any, emit_text_segments: Any
    ) -> None:
        def special(token: int, sampled: bool = True) -> None:
            emit_special(token, msg_idx, is_sampled=sampled, is_content=sampled)

        if msg_idx == 0 or messages[msg_idx - 1]["role"] != "tool":
            special(self._assistant_token, False)
            special(self._think_end, False)
        emit_text(msg["content"], msg_idx, is_sampled=True, is_content=True)
        calls = msg.get("tool_calls") or []
        if calls:
            special(self._tool_calls_begin)
        for call in calls:
            special(self._tool_call_begin)
            emit_text(call["function"]["name"], msg_idx, is_sampled=True, is_content=True)
            special(self._tool_sep)
            arguments = json.dumps(call["function"]["arguments"], ensure_ascii=False)
            emit_text(arguments, msg_idx, is_sampled=True, is_content=True)
            special(self._tool_call_end)
        if calls:
            special(self._tool_calls_end)
        special(self._eos)

    def _render_tool(
        self, messages: Any, msg_idx: int, *, emit_special: Any, emit_text: Any, emit_text_segments: Any
    ) -> None:
        emit_special(self._tool_output_begin, msg_idx, is_sampled=False, is_content=False)
        emit_text(messages[msg_idx]["content"], msg_idx, is_sampled=False, is_content=True)
        emit_special(self._tool_output_end, msg_idx, is_sampled=False, is_content=False)
