"""What an agent has said and heard: messages for text policies, exact tokens for token policies, entries for the session.

Promise 2 lives here for our own agent: it appends rendered pieces and sampled ids to the held tokens and never renders a
turn twice. A text policy with a renderer (a scripted expert) gets its turns rendered once, as sampled tokens with logprob
0 and version -1: demonstrations for SFT, in the same format as rollouts. Without a renderer there are no tokens at all.
"""

from __future__ import annotations

from typing import Any, Sequence

from etude.chat.renderer import Renderer, TokenKinds
from etude.trace.builder import SegmentBuilder
from etude.trace.completion import Completion, SampledTokens
from etude.trace.entry import EntryRoutes, EntryTokens
from etude.trace.message import Message
from etude.trace.session import Recorder

# A text policy without a renderer reports usage or nothing; four characters a token is the usual rule of thumb.
CHARS_PER_TOKEN = 4


class Transcript:
    """Grows the three views together. `messages` is the current segment's conversation."""

    def __init__(self, recorder: Recorder, renderer: Renderer | None, tools: Sequence[dict[str, Any]]) -> None:
        self.messages: list[Message] = []
        self.builder = SegmentBuilder()
        self.calls = 0  # names calls across segments: an id is unique in its session
        self._recorder = recorder
        self._renderer = renderer
        self._tools = tools
        self._node: int | None = None  # the entry whose tokens come last
        self._root: int | None = None  # the original request, where every segment hangs
        self._prefix: list[tuple[Message, list[int] | None]] = []
        self._estimate = 0  # tokens of the open segment if nothing else tells
        self._sealed = 0  # tokens of the sealed segments, counted the same way

    @property
    def segment_tokens(self) -> int:
        return len(self.builder.held) if self._renderer else self._estimate

    @property
    def session_tokens(self) -> int:
        return self.builder.total_tokens if self._renderer else self._sealed + self._estimate

    def prompt_ids(self) -> tuple[int, ...]:
        """The next request's prompt: the tokens held so far and the generation prompt."""
        return (*self.builder.held, *self._renderer.generation_prompt()) if self._renderer else ()

    def stop_ids(self) -> tuple[int, ...]:
        return self._renderer.stop_ids if self._renderer else ()

    def open(self, prefix: Sequence[Message]) -> None:
        """Start the first segment with the system prompt and the request."""
        for i, message in enumerate(prefix):
            tools = self._tools if i == 0 else ()  # a format declares its tools once, in front
            ids = self._renderer.render_prefix([message], tools) if self._renderer else None
            self._prefix.append((message, ids))
            self._add(message, ids, "message", message.to_json())
        self._root = self._node

    def query(self, message: Message) -> None:
        """Append a user message (the self-summary's query)."""
        self._add(message, self._render(message), "message", message.to_json())

    def result(self, message: Message, name: str, failed: bool) -> int:
        """Append a tool result; how many tokens it took."""
        before = self.segment_tokens
        data = {"call_id": message.call_id, "name": name, "text": message.text, "failed": failed}
        self._add(message, self._render(message), "tool_result", data)
        return self.segment_tokens - before

    def restart(self, carried: Message, data: dict[str, Any]) -> None:
        """Seal the segment; the next one is the prefix and the message that carries summary and state."""
        self._sealed += self._estimate
        self._estimate = 0
        self.builder.begin()
        for message, ids in self._prefix:
            self.builder.extend(ids or ())
            self._estimate += _chars(message)
        self.messages = [message for message, _ in self._prefix]
        self._node = self._root
        self._add(carried, self._render(carried), "summary", {**data, "message": carried.to_json()})

    def completion(self, answer: Completion, prompt: tuple[int, ...]) -> tuple[Message, TokenKinds]:
        """Append a policy's turn: its message, and how its tokens divide."""
        if self._renderer is None:
            message = _require(answer)
            routes, tokens, kinds = None, None, _estimate_kinds(message)
            self._estimate = answer.usage.input_tokens + answer.usage.output_tokens or self._estimate + _chars(message)
        else:
            message, sampled = self._read(answer)
            tokens, routes = self._hold(sampled, prompt)
            kinds = self._renderer.count(sampled.ids)
        self.calls += len(message.calls)
        self.messages.append(message)
        data = {"message": message.to_json(), "finish": answer.finish, "usage": vars(answer.usage)}
        self._node = self._recorder.append("completion", data, parent=self._node, tokens=tokens, routes=routes)
        return message, kinds

    def _read(self, answer: Completion) -> tuple[Message, SampledTokens]:
        assert self._renderer is not None
        if answer.tokens is not None:
            return self._renderer.parse(answer.tokens.ids, first_call=self.calls), answer.tokens
        ids = self._renderer.render_message(_require(answer))[len(self._renderer.generation_prompt()) :]
        message = self._renderer.parse(ids, first_call=self.calls)  # what a token policy's session would hold
        return message, SampledTokens(ids, [0.0] * len(ids), [-1] * len(ids))

    def _hold(self, sampled: SampledTokens, prompt: tuple[int, ...]) -> tuple[EntryTokens, EntryRoutes | None]:
        assert self._renderer is not None
        lead = list(prompt[len(self.builder.held) :])
        if not self.builder.prompt(prompt):
            lead, self._node = [], self._fork(prompt)
        self.builder.sample(sampled)
        tail = self._renderer.close_turn(sampled.ids)
        self.builder.extend(tail)
        tokens = EntryTokens([*lead, *sampled.ids, *tail], len(lead), sampled.logprobs, sampled.versions)
        has_routes = sampled.routes is not None and len(sampled.routes) > 0
        return tokens, EntryRoutes(sampled.route_start, sampled.routes) if has_routes else None  # pyright: ignore

    def _fork(self, prompt: tuple[int, ...]) -> int:
        """The prompt did not continue the held tokens: a new tree root says so and holds all of it."""
        tokens = EntryTokens(list(prompt), lead=len(prompt))
        return self._recorder.append("fork", {"held_by": self._node}, tokens=tokens)

    def _render(self, message: Message) -> list[int] | None:
        return self._renderer.render_message(message) if self._renderer else None

    def _add(self, message: Message, ids: list[int] | None, kind: Any, data: dict[str, Any]) -> None:
        self.messages.append(message)
        self._estimate += _chars(message)
        self.builder.extend(ids or ())
        tokens = EntryTokens(ids, lead=len(ids)) if ids is not None else None
        self._node = self._recorder.append(kind, data, parent=self._node, tokens=tokens)


def _require(answer: Completion) -> Message:
    if answer.message is None:
        raise ValueError("the policy gave tokens but this agent has no renderer; construct it with one")
    return answer.message


def _chars(message: Message) -> int:
    calls = sum(len(str(value)) for call in message.calls for value in call.arguments.values())
    return (len(message.text) + len(message.thinking) + calls) // CHARS_PER_TOKEN + 1


def _estimate_kinds(message: Message) -> TokenKinds:
    thinking = len(message.thinking) // CHARS_PER_TOKEN
    text = len(message.text) // CHARS_PER_TOKEN
    if not message.calls:
        return TokenKinds(thinking=thinking, message=text)
    final = sum(len(str(v)) for c in message.calls if c.name == "done" for v in c.arguments.values())
    calls = sum(len(c.name) + len(str(v)) for c in message.calls for v in c.arguments.values()) - final
    return TokenKinds(thinking + text, calls // CHARS_PER_TOKEN, final // CHARS_PER_TOKEN)
