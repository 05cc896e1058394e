"""The agent's conversation: messages for text policies, exact tokens for token policies, entries for the session.

This module keeps promise 2: it appends rendered tokens and sampled ids to the held tokens and never renders a turn twice. A format that
renders each message independently is appended message by message. For other formats, the messages since the last turn are rendered
together with the next prompt, in front of the turn that reads them. If the format can't prove that this continues the held tokens, the
trace forks: the whole conversation is rendered again, and the fork is counted.

A text policy with a renderer (a scripted expert) gets its turns rendered once, as sampled tokens with logprob 0 and version -1: these are
demonstrations for SFT, in the same format as rollouts. Without a renderer there are tokens where the policy's server returns its prompt's.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Callable, Mapping, Sequence

from etude.agent.chat.renderer import Pieces, Renderer
from etude.agent.harness.shortening import shortened
from etude.agent.metrics.tokens import CHARS_PER_TOKEN, count_turn_tokens, estimate
from etude.agent.policy.wire.outgoing import fresh_id
from etude.core.trace.builder import SegmentBuilder
from etude.core.trace.completion import Completion, SampledTokens
from etude.core.trace.entry import Entry, EntryRoutes, EntryTokens, turn_tokens
from etude.core.trace.message import Message
from etude.core.trace.session import Recorder, Session

# Tokenizers encode some megabytes a second and release the interpreter. Longer texts (5 ms) are encoded on a thread.
INLINE_CHARS = 16_000
# Largest ratio of counted to estimated tokens. An endpoint with a larger one counts something else.
MAX_SCALE = 4.0
NOTHING: Mapping[str, Any] = {}


@dataclass(frozen=True)
class _NextPrompt:
    """The next request: the held tokens (or none of them, if it forks) and the tokens that follow them."""

    ids: tuple[int, ...]
    follows: list[int]
    forks: bool = False
    read: int = 0  # of those that follow, tokens of tool results


@dataclass
class _PendingMessages:
    """The messages since the last turn, for a format that renders them together."""

    turn: Message | None = None  # None: nothing was sampled in this segment yet
    sampled: list[int] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)


class Transcript:
    """Grows the three views together. `messages` is the current segment's conversation."""

    def __init__(self, recorder: Recorder, renderer: Renderer | None, tools: Sequence[dict[str, Any]]) -> None:
        keep_large_blocks()
        self.messages: list[Message] = []
        self._entries: list[int] = []  # of each message, the number of the entry that holds it
        self.builder = SegmentBuilder()
        self.calls = 0  # number of calls in all segments, from which call ids are made: an id is unique in its session
        self.calling_tokens = 0  # tokens of the last turn's calls, including a call that was cut off
        self._call_ids: set[str] = set()
        self._recorder = recorder
        self._renderer = renderer
        self._pieces: Pieces | None = renderer.pieces if renderer else None
        self._is_rendered_together = renderer is not None and self._pieces is None  # rendered with its neighbours
        self._tools = tools
        self._node: int | None = None  # the entry whose tokens come last
        self._served_node: int | None = None  # of tokens that a server returned, in the open segment
        self._root: int | None = None  # the original request, the parent of every segment
        self._prefix: list[tuple[Message, list[int] | None]] = []
        self._scale = 1.0  # the endpoint's token count divided by the estimate
        self._tool_tokens = len(json.dumps(tools)) // CHARS_PER_TOKEN  # estimated tokens of the tool schemas
        self._prompt: _NextPrompt | None = None
        self._answered: tuple[int, ...] = ()  # the segment's last prompt with an answer: a prefix of the held tokens
        self._pending = _PendingMessages()
        self._estimate = 0  # estimated tokens of the open segment, used without a count
        self._sealed = 0  # tokens of the sealed segments, counted the same way

    @property
    def segment_tokens(self) -> int:
        if self._renderer is None:
            return self._estimate
        return len(self._ahead.ids) if self._ahead else len(self.builder.open_ids)

    @property
    def estimated_tokens(self) -> int:
        """Tokens of the messages and the tools, estimated from their characters; at least one."""
        return 1 + self._tool_tokens + sum(map(estimate, self.messages))

    @property
    def has_turn(self) -> bool:
        """Whether the segment holds a turn after its prefix, so that a summary would make it shorter."""
        return any(message.role == "assistant" for message in self.messages[len(self._prefix) :])

    @property
    def session_tokens(self) -> int:
        if self._renderer is None:
            return self._sealed + self._estimate
        return self.builder.total_tokens + (len(self._ahead.follows) if self._ahead else 0)

    @property
    def _ahead(self) -> _NextPrompt | None:
        """The prompt that is rendered but not held yet. A format in pieces holds what it renders."""
        return self._prompt if self._is_rendered_together else None

    async def prompt(self) -> tuple[int, ...]:
        """The next request's prompt: the held tokens, the messages since then, and the generation prompt. It is cached until a message is
        added."""
        if self._renderer is None:
            return ()
        if self._prompt is None:
            self._prompt = await self._next()
        return self._prompt.ids

    def stop_ids(self) -> tuple[int, ...]:
        return self._renderer.stop_ids if self._renderer else ()

    def open(self, prefix: Sequence[Message]) -> None:
        """Start the first segment with the system prompt and the request."""
        whole = self._renderer.render(prefix, self._tools) if self._renderer and self._is_rendered_together else []
        for message, ids in zip(prefix, self._opening(prefix, whole), strict=True):
            self._prefix.append((message, ids))
            self._add(message, ids, "message", message.to_json())
        self._root = self._node
        if self._is_rendered_together:
            self._prompt = _NextPrompt(tuple(whole), whole[len(self.builder.open_ids) :])

    def restore(self, session: Session, *, tools_changed: bool = False) -> None:
        """Resume a recorded session with its last segment's messages and tokens, before anything is added.

        `tools_changed`: the offered tools changed, so their declaration is rendered again, and the trace forks.
        """
        opened = False
        for entry in session.entries:
            if entry.type == "completion":
                opened = True
                self._restore_entry(Message.from_json(entry.data["message"]), entry)
                self.calls += len(self.messages[-1].calls)
                self._call_ids |= {call.id for call in self.messages[-1].calls}
            elif entry.type == "message":
                message = Message.from_json({k: v for k, v in entry.data.items() if k != "foreign"})
                if not opened and message.delivery is None:
                    self._prefix.append((message, None if entry.tokens is None else entry.tokens.ids))
                    self._root = entry.id
                self._restore_entry(message, entry)
            elif entry.type == "tool_result":
                self._restore_entry(Message("tool", entry.data["text"], call_id=entry.data.get("call_id")), entry)
            elif entry.type == "summary" and (carried := entry.data.get("message")):
                self._start_segment()
                self._restore_entry(Message.from_json(carried), entry)
            elif entry.type == "shortened":
                self._replace({int(number): text for number, text in entry.data["texts"].items()})
            elif entry.type == "fork" and entry.tokens is not None:
                self.builder.fork(entry.tokens.ids)
                self._node = self._served_node = entry.id
        if tools_changed:
            self._pending = _PendingMessages()

    def _restore_entry(self, message: Message, entry: Entry) -> None:
        """Hold a recorded entry."""
        self.messages.append(message)
        self._entries.append(entry.id)
        self._estimate += estimate(message)
        self._node = entry.id
        self._served_node = self._served_node if entry.tokens is None else entry.id
        sampled = message.role == "assistant"
        if self._is_rendered_together:
            self._pending = _PendingMessages(message, []) if sampled else self._pending
            self._pending.messages += [] if sampled else [message]
        if entry.tokens is None:
            return
        tokens, count = entry.tokens, len(entry.tokens.logprobs)
        self.builder.extend(tokens.ids[: tokens.lead])
        if count:
            ids = tokens.ids[tokens.lead : tokens.lead + count]
            routes = entry.routes
            given = (None, 0) if routes is None else (routes.rows, routes.start)
            self.builder.sample(SampledTokens(ids, tokens.logprobs, tokens.versions, *given))
            self._pending.sampled = ids
        self.builder.extend(tokens.ids[tokens.lead + count :])

    def hear(self, message: Message) -> None:
        """Append a user message, or the self-summary's query."""
        self._add(message, self._render(message), "message", message.to_json())

    def result(self, message: Message, name: str, failed: bool, facts: Mapping[str, Any] = NOTHING) -> None:
        """Append a tool result, with further fields of its entry (`core/trace/schema.py`)."""
        data = {"call_id": message.call_id, "name": name, "text": message.text, "failed": failed, **facts}
        self._add(message, self._render(message), "tool_result", data)

    def restart(self, carried: Message, data: dict[str, Any]) -> None:
        """Seal the segment; the next one is the prefix and the message that carries summary and state."""
        self._start_segment()
        self._add(carried, self._render(carried), "summary", {**data, "message": carried.to_json()})

    def take_token_count(self, prompt_tokens: int) -> None:
        """Take the endpoint's token count of the current messages."""
        if prompt_tokens > 0:
            self._estimate = prompt_tokens
            self._scale = min(MAX_SCALE, max(1.0, prompt_tokens / self.estimated_tokens))

    def shorten(self, most_tokens: int, facts: Mapping[str, Any]) -> bool:
        """Make the messages fit `most_tokens` tokens, record which texts became shorter, and return whether any did. For text policies.

        A refusal is recorded even if no text became shorter, because a replay needs it.
        """
        most_chars = (int(most_tokens / self._scale) - self._tool_tokens) * CHARS_PER_TOKEN
        texts = shortened(self.messages, most_chars)
        if not texts and not facts.get("refused"):
            return False
        changed = {self._entries[place]: text for place, text in texts.items()}
        self._replace(changed)
        self._recorder.append("shortened", {"texts": {str(key): text for key, text in changed.items()}, **facts})
        return bool(changed)

    def _replace(self, texts: Mapping[int, str]) -> None:
        """Replace the texts of these entries. A turn with a new text loses its provider's opaque data."""
        for place, number in enumerate(self._entries):
            if number in texts:
                self.messages[place] = replace(self.messages[place], text=texts[number], opaque={})
        self._prefix = [(self.messages[i], ids) for i, (_, ids) in enumerate(self._prefix)]
        self._estimate = round(self.estimated_tokens * self._scale)

    def _start_segment(self) -> None:
        self._sealed += self._estimate
        self._estimate = 0
        self._served_node = None
        self.builder.begin()
        for message, ids in self._prefix:
            self.builder.extend(ids or ())
            self._estimate += estimate(message)
        self.messages = [message for message, _ in self._prefix]
        self._entries = self._entries[: len(self._prefix)]
        self._node = self._root
        self._pending = _PendingMessages()
        self._answered = ()

    def completion(self, answer: Completion) -> Message:
        """Append a policy's turn, the answer to the last prompt, and return its message. The entry counts its tokens by kind."""
        read = self._prompt.read if self._prompt is not None else 0
        if self._renderer is None:
            message = self._distinct(_require(answer))
            tokens, routes = self._take_served(answer) if answer.tokens is not None else (None, None)
            kinds = count_turn_tokens(message)._asdict()
            self.take_token_count(answer.usage.input_tokens)
            self._estimate = answer.usage.input_tokens + answer.usage.output_tokens or self._estimate + estimate(
                message
            )
        else:
            message, sampled = self._parse(answer)
            tokens, routes = self._append_tokens(sampled)
            kinds = vars(self._renderer.count(sampled.ids))
            self._pending = _PendingMessages(message, sampled.ids)
        self.calls += len(message.calls)
        self.calling_tokens = kinds["calling"]
        self.messages.append(message)
        data = {"message": message.to_json(), "finish": answer.finish, "usage": vars(answer.usage), "spoken": kinds}
        data |= {"read": read} if read else {}
        parent = self._node if tokens is None or self._renderer is not None else self._served_node
        self._node = self._recorder.append("completion", data, parent=parent, tokens=tokens, routes=routes)
        self._served_node = self._served_node if tokens is None else self._node
        self._entries.append(self._node)
        return message

    def _distinct(self, message: Message) -> Message:
        """The turn with call ids that are unique in the session. Results are found by id, but some endpoints number the calls of each turn
        from the start, or send an id twice."""
        calls = []
        for call in message.calls:
            calls.append(replace(call, id=fresh_id(call.id, self._call_ids)))
            self._call_ids.add(calls[-1].id)
        return replace(message, calls=tuple(calls))

    def _parse(self, answer: Completion) -> tuple[Message, SampledTokens]:
        assert self._renderer is not None
        if answer.tokens is not None:
            sampled = answer.tokens
        else:
            ids = self._renderer.answer(_require(answer), first_call=self.calls)
            sampled = SampledTokens(ids, [0.0] * len(ids), [-1] * len(ids))
        # The same parse as for a token policy, also for a scripted expert. An endpoint gets back the further fields that it sent.
        message = self._renderer.parse(sampled.ids, tools=self._tools, first_call=self.calls)
        return (message if answer.message is None else message.as_provided(answer.message)), sampled

    def _append_tokens(self, sampled: SampledTokens) -> tuple[EntryTokens, EntryRoutes | None]:
        """Append the answered prompt and the answer, and return the tokens that they add."""
        if self._prompt is None:
            raise RuntimeError("an answer came without a prompt: ask for the prompt before every request")
        prompt, self._prompt = self._prompt, None
        lead = [] if prompt.forks else prompt.follows
        if prompt.forks:
            self._node = self._fork(prompt.follows, self._node)
        else:
            self.builder.extend(lead)
        self._answered = prompt.ids
        self.builder.sample(sampled)
        tail = self._pieces.close_turn(sampled.ids) if self._pieces else []
        self.builder.extend(tail)
        return turn_tokens(lead, sampled, tail)

    def _take_served(self, answer: Completion) -> tuple[EntryTokens, EntryRoutes | None]:
        """Append the prompt that the server rendered and the answer, and return the tokens that they add."""
        assert answer.tokens is not None
        prompt, held = list(answer.prompt_ids), self.builder.open_ids
        lead = prompt[len(held) :] if prompt[: len(held)] == held else []
        if lead or not held:
            self.builder.extend(lead)
        else:
            self._served_node = self._fork(prompt, self._served_node)
        self.builder.sample(answer.tokens)
        return turn_tokens(lead, answer.tokens)

    def _fork(self, ids: list[int], holder: int | None) -> int:
        """Record a new tree root with the whole prompt, because it does not continue the tokens held up to `holder`."""
        self.builder.fork(ids)
        return self._recorder.append("fork", {"held_by": holder}, tokens=EntryTokens(ids, lead=len(ids)))

    async def _next(self) -> _NextPrompt:
        assert self._renderer is not None
        held = self.builder.open_ids
        if self._pieces is not None:
            follows = self._pieces.generation_prompt()
            return _NextPrompt(self._after_held(follows), follows)
        new = self._pending
        if new.turn is not None:
            arguments = (new.turn, new.sampled, tuple(new.messages), self._tools)
            bridge = await _run_off_loop(new.messages, self._renderer.bridge, *arguments)
            if bridge is not None:
                read = sum(n for n, message in zip(bridge.taken, new.messages, strict=True) if message.role == "tool")
                return _NextPrompt(self._after_held(bridge.ids), bridge.ids, read=read)
        whole = await _run_off_loop(self.messages, self._renderer.render, tuple(self.messages), self._tools)
        if whole[: len(held)] == held:  # the proof, also where the format promises nothing
            return _NextPrompt(tuple(whole), whole[len(held) :])
        return _NextPrompt(tuple(whole), whole, forks=True)

    def _after_held(self, follows: list[int]) -> tuple[int, ...]:
        """The held tokens and these. Only the copy of the last prompt, one block of memory, grows with the history."""
        new = self.builder.open_ids[len(self._answered) :]
        return self._answered + (*new, *follows)

    def _opening(self, prefix: Sequence[Message], whole: list[int]) -> Sequence[list[int] | None]:
        """The tokens of each message of the prefix, which all segments share. `whole` is the prefix rendered as a prompt."""
        if self._renderer is None:
            return [None] * len(prefix)
        if self._pieces is not None:  # a format declares its tools once, in front
            return [self._pieces.render_prefix([m], () if i else self._tools) for i, m in enumerate(prefix)]
        shared = self._renderer.render(prefix, self._tools, generation=False)
        none: list[list[int] | None] = [[] for _ in prefix[1:]]
        return [*none, shared if whole[: len(shared)] == shared else []]

    def _render(self, message: Message) -> list[int] | None:
        """The message's tokens if they are known: none yet if it is rendered together with its neighbours."""
        if self._renderer is None:
            return None
        return self._pieces.render_message(message) if self._pieces else []

    def _add(self, message: Message, ids: list[int] | None, kind: Any, data: dict[str, Any]) -> None:
        self.messages.append(message)
        self._prompt = None
        if self._is_rendered_together:
            self._pending.messages.append(message)
        self._estimate += estimate(message)
        self.builder.extend(ids or ())
        tokens = EntryTokens(ids, lead=len(ids)) if ids is not None else None
        self._node = self._recorder.append(kind, data, parent=self._node, tokens=tokens)
        self._entries.append(self._node)


async def _run_off_loop(messages: Sequence[Message], work: Callable[..., Any], *arguments: Any) -> Any:
    """Run `work` on the event loop if its messages are short, else on a thread."""
    if sum(len(message.text) for message in messages) < INLINE_CHARS:
        return work(*arguments)
    return await asyncio.to_thread(work, *arguments)


def _require(answer: Completion) -> Message:
    if answer.message is None:
        raise ValueError("the policy gave tokens but this agent has no renderer; construct it with one")
    return answer.message


# A prompt of two million tokens; glibc's own limit is twice that.
_LARGEST_BYTES = 16 << 20


@cache
def keep_large_blocks() -> None:
    """Raise the threshold above which glibc returns a freed block to the system. Runs once in a process and touches no memory.

    Each turn of a token policy frees the last prompt and allocates a longer one. glibc returns a freed block above 128 KiB (16,000 tokens)
    to the system and takes fresh pages for the next: 1 ms a turn at 200,000 tokens, more than the rest of the harness. The threshold rises
    to the largest block freed so far (mallopt(3), M_MMAP_THRESHOLD). Without glibc this changes nothing.
    """
    bytearray(_LARGEST_BYTES)
