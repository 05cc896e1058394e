"""A chat format that is written as text and encoded by the checkpoint's tokenizer: the base of the formats that the `renderers` package lacks.

A subclass says what precedes the messages, how each message is written, and how calls are read. It has the methods of the package's
renderers that `FamilyRenderer` uses. Every block begins with a marker token, so that blocks are encoded one by one.
"""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Any

from renderers import ParsedResponse, ParsedToolCall, RenderedTokens, ToolCallParseStatus, trim_to_turn_close

from etude.agent.chat.hub_tokenizer import HubTokenizer
from etude.core.trace.plain_json import parse

Row = dict[str, Any]
# What is between two markers: the text, its place with the markers, and whether it is closed.
Block = tuple[str, tuple[int, int], bool]


class TextFormat:
    """See the module. `generation` opens a turn of the assistant, `end` closes it, `after` follows the end."""

    generation = ""
    end = ""
    after = ""
    stops: tuple[str, ...] = ()  # further tokens that end a turn, where the tokenizer has them

    def __init__(self, tokenizer: HubTokenizer) -> None:
        self.tokenizer = tokenizer
        found = tokenizer.convert_tokens_to_ids([self.end, *self.stops])
        self._stops: list[int] = [token for token in found if token is not None]

    def opening(self, rows: Sequence[Row], tools: Sequence[Row]) -> tuple[str, Sequence[Row]]:
        """What precedes the messages, tools included, and the messages that remain to be written."""
        raise NotImplementedError

    def block(self, rows: Sequence[Row]) -> str:
        """Messages of the system, the user and tools as text; several where the format writes neighbours as one turn."""
        raise NotImplementedError

    def joins(self, before: Row, row: Row) -> bool:
        """Whether a message belongs to the block of the message before it."""
        return False

    def turn(self, row: Row) -> str:
        """What the policy samples for an assistant message, without the end."""
        raise NotImplementedError

    def calls(self, ids: list[int]) -> list[ParsedToolCall]:
        """The calls of a sampled turn, with their places among the ids."""
        raise NotImplementedError

    def get_stop_token_ids(self) -> list[int]:
        return [*self._stops]

    def render_ids(
        self, messages: Sequence[Row], *, tools: Sequence[Row] | None = None, add_generation_prompt: bool = False
    ) -> list[int]:
        opening, rows = self.opening(messages, tools or ())
        ids = self.tokenizer.encode(opening)
        for block in self._blocks(rows):
            ids += self.tokenizer.encode(self._written(block))
        return ids + self.tokenizer.encode(self.generation) if add_generation_prompt else ids

    def bridge_to_next_turn(
        self,
        previous_prompt_ids: Sequence[int],
        previous_completion_ids: Sequence[int],
        new_messages: Sequence[Row],
        *,
        tools: Sequence[Row] | None = None,
    ) -> RenderedTokens | None:
        """The held tokens and what follows them; None for what is no extension of them."""
        held = self._held(previous_prompt_ids, previous_completion_ids, new_messages)
        if held is None:
            return None
        held += self.tokenizer.encode(self.end + self.after)[1:]  # Phi-3's end of a turn takes the blanks behind it
        owners = [-1] * len(held)
        first = 0
        for block in self._blocks(new_messages):
            ids = self.tokenizer.encode(self._written(block))
            held += ids
            owners += [first + place for place in self._owners(block, len(ids))]
            first += len(block)
        prompt = self.tokenizer.encode(self.generation)
        return RenderedTokens(
            token_ids=held + prompt,
            message_indices=owners + [-1] * len(prompt),
            message_roles=[row["role"] for row in new_messages],
        )

    def _held(self, prompt: Sequence[int], sampled: Sequence[int], new: Sequence[Row]) -> list[int] | None:
        """Prompt and sampled turn up to the turn's end, which is added if it lacks; None if these messages can't follow it."""
        if not new or any(row["role"] == "assistant" for row in new):
            return None
        return trim_to_turn_close(list(prompt), list(sampled), {*self._stops}, synthesize_close=self._stops[0])

    def spoken(self, row: Row, before: Sequence[Row]) -> list[int]:
        """An assistant message as sampled after the generation prompt."""
        return [*self.tokenizer.encode(self.turn(row)), self._stops[0]]

    def parse_response(
        self, token_ids: Sequence[int], *, tools: Sequence[Row] | None = None, prompt_ids: Sequence[int] | None = None
    ) -> ParsedResponse:
        stop = next((i for i, token in enumerate(token_ids) if token in self._stops), len(token_ids))
        ids = list(token_ids[:stop])
        calls = self.calls(ids)
        spans = [call.token_span for call in calls if call.token_span is not None]
        first = spans[0][0] if spans else len(ids)
        return ParsedResponse(content=self.tokenizer.decode(ids[:first]).strip(), tool_calls=calls)

    def _blocks(self, rows: Sequence[Row]) -> list[list[Row]]:
        blocks: list[list[Row]] = []
        for row in rows:
            if blocks and self.joins(blocks[-1][-1], row):
                blocks[-1].append(row)
            else:
                blocks.append([row])
        return blocks

    def _written(self, rows: Sequence[Row]) -> str:
        if rows[0]["role"] == "assistant":
            return "".join(self.generation + self.turn(row) + self.end + self.after for row in rows)
        return self.block(rows)

    def _owners(self, rows: Sequence[Row], length: int) -> list[int]:
        """For each token of a block the message that it belongs to: by the lengths of their texts, the rest to the last."""
        owners: list[int] = []
        for place, row in enumerate(rows[:-1]):
            owners += [place] * len(self.tokenizer.encode(row["content"]))
        return [*owners, *[len(rows) - 1] * length][:length]


def written_json(value: Any) -> str:
    """JSON as chat templates write it."""
    return json.dumps(value, ensure_ascii=False)


def marked_blocks(tokenizer: HubTokenizer, ids: Sequence[int], opening: str, closing: str) -> list[Block]:
    """What is between two marker tokens, as often as they occur."""
    first, last = tokenizer.added[opening], tokenizer.added[closing]
    blocks: list[Block] = []
    start: int | None = None
    for i, token in enumerate(ids):
        if start is None and token == first:
            start = i
        elif start is not None and token == last:
            blocks.append((tokenizer.decode(ids[start + 1 : i]).strip(), (start, i + 1), True))
            start = None
    if start is not None:
        blocks.append((tokenizer.decode(ids[start + 1 :]).strip(), (start, len(ids)), False))
    return blocks


def read_call(text: str, span: tuple[int, int], key: str = "arguments") -> ParsedToolCall:
    """A call that is one JSON object with a name and, under `key`, its arguments."""
    try:
        return _call_of(parse(text), text, span, key)
    except ValueError:
        return ParsedToolCall(raw=text, token_span=span, status=ToolCallParseStatus.INVALID_JSON)


def read_calls(text: str, span: tuple[int, int], key: str = "arguments") -> list[ParsedToolCall]:
    """The calls of a block that is one JSON list of such objects, or one object. All of them have the block's place."""
    try:
        value = parse(text)
    except ValueError:
        return [ParsedToolCall(raw=text, token_span=span, status=ToolCallParseStatus.INVALID_JSON)]
    return [_call_of(row, text, span, key) for row in (value if isinstance(value, list) and value else [value])]


def _call_of(value: Any, text: str, span: tuple[int, int], key: str) -> ParsedToolCall:
    call = ParsedToolCall(raw=text, token_span=span)
    name = value.get("name") if isinstance(value, dict) else None
    if not isinstance(name, str) or not name:
        call.status = ToolCallParseStatus.MISSING_NAME
        return call
    call.name, call.arguments = name, value.get(key, {})
    return call


def json_end(text: str, start: int) -> int | None:
    """Where the JSON value that begins at `start` ends; None if it does not."""
    try:
        return json.JSONDecoder().raw_decode(text, start)[1]
    except (ValueError, RecursionError):
        return None


def token_span(tokenizer: HubTokenizer, ids: Sequence[int], start: int, stop: int) -> tuple[int, int]:
    """The tokens that hold the characters from `start` to `stop` of the decoded ids."""

    def length(count: int) -> int:
        return len(tokenizer.decode(ids[:count]))

    counts = range(len(ids) + 1)
    return max(0, bisect_right(counts, start, key=length) - 1), bisect_left(counts, stop, key=length)
