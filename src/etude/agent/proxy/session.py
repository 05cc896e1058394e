"""One agent's session: its requests are matched with what was said before, asked of the policy, and recorded.

Only sampling runs side by side. Placing a request in the graph and recording its answer happen one after the other, so that
two sub-agents that ask at once find each other's messages. After the end nothing is sampled or written any more.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from etude.agent.chat.renderer import Renderer, RenderError
from etude.agent.policy.protocol import Policy, PolicyError, Request, served_chat_of
from etude.agent.policy.wire.outgoing import fresh_id
from etude.agent.proxy.ask import Ask, ProxyRequestError
from etude.agent.proxy.graph import Node, match, message_key
from etude.agent.proxy.header import capture_header
from etude.agent.proxy.record import Record
from etude.agent.proxy.retries import Retries
from etude.agent.proxy.settings import CaptureSettings
from etude.agent.proxy.telling import TurnDeltas
from etude.agent.proxy.tokens import TokenChain, aside, continue_prompt, opening
from etude.core.trace.completion import Completion, SampledTokens, Usage
from etude.core.trace.message import Message


@dataclass(frozen=True)
class _Place:
    """Where a request's answer goes: behind `node`'s message; in the file on `entry`, behind the tokens `held` and `lead`."""

    node: Node
    renderer: Renderer | None
    entry: int | None
    held: TokenChain | None
    lead: list[int]
    prompt: tuple[int, ...]


class CaptureSession:
    """From its first request, with which the file begins, to `end`."""

    def __init__(
        self, id: str, task_id: str, policy: Policy, renderer: Renderer | None, settings: CaptureSettings
    ) -> None:
        self.id = id
        self.task_id = task_id
        self.retries = Retries(settings.grace_s)
        self.ended = False
        self.summary: dict[str, Any] | None = None  # once all of it is written
        self._policy = policy
        self._renderer = renderer
        self._settings = settings
        self._record: Record | None = None
        self._roots: dict[str, Node] = {}
        self._names: dict[Node, str] = {}  # what the policy calls each conversation, by the end of its opening
        self._tools: tuple[dict[str, Any], ...] = ()
        self._calls = 0
        self._call_ids: set[str] = set()  # where the policy gives them
        self._turns: dict[str, Message] = {}  # the policy's, by what they say
        self._said = ""
        self._lock = asyncio.Lock()
        self._ending = asyncio.Lock()

    @property
    def path(self) -> Path:
        return self._settings.sessions / f"{self.id}.jsonl"

    async def answer(self, ask: Ask, source: dict[str, str], telling: TurnDeltas | None = None) -> Completion:
        """The policy's turn, recorded; streamed in pieces too, if a client wants them. Raises Refused, PolicyError."""
        if not ask.messages or ask.messages[-1].role == "assistant":
            raise ProxyRequestError(
                "the conversation must end with a message for the model; it can't go on with a turn begun for it"
            )
        ask = replace(ask, effort=ask.effort or self._settings.effort)
        async with self._lock:
            record = self._begin(ask, source)
            place = await self._place(record, ask)
        request = self._request(place, ask, telling)
        start = time.perf_counter()
        try:
            answer = await self._policy.complete(request)
            if answer.finish == "abort":
                raise PolicyError("the policy gave the answer up; ask again")
        except PolicyError as error:
            record.fault(type(error).__name__, str(error), infra=error.infra)
            raise
        except asyncio.CancelledError:
            record.fault("Disconnected", "the agent went away before its answer was sampled", infra=True)
            raise
        place, answer = self._served(record, place, answer)
        return self._take(record, place, ask, answer, time.perf_counter() - start, telling)

    async def end(self, reason: str = "done") -> dict[str, Any]:
        """Seal the session: what it came to. Ending it again changes nothing."""
        self.ended = True
        async with self._ending:
            if self.summary is None:
                await self.retries.close()
                counters = self.counters()
                samples = self._record.end(reason, self._said, counters) if self._record else 0
                for name in self._names.values():
                    await self._policy.release(name)
                file = str(self.path) if self._record else None
                self.summary = {"session": self.id, "file": file, "reason": reason, "samples": samples, **counters}
                self._record, self._roots, self._names, self._turns = None, {}, {}, {}  # it is all in the file
            return self.summary

    def counters(self) -> dict[str, int]:
        """What happened so far, in numbers."""
        names = ("turns", "malformed_turns", "calls", "sampled_tokens", "forks")
        own = {name: self._record.counts[name] if self._record else 0 for name in names}
        asked = {name: self.retries.counts[name] for name in ("replayed", "joined", "cancelled")}
        return {**own, "branches": sum(map(_ends, self._roots.values())), **asked}

    def _begin(self, ask: Ask, source: dict[str, str]) -> Record:
        if self.ended:
            raise ProxyRequestError(f"the session {self.id} has ended", 409)
        if self._record is None:
            self._tools = ask.tools
            header = capture_header(self.id, self.task_id, ask, self._policy, self._renderer, source)
            self._record = Record(self.path, header, tokens=self._renderer is not None)
        self._record.effort_is(ask.effort)
        return self._record

    async def _place(self, record: Record, ask: Ask) -> _Place:
        """Hang what is new in the graph and find the prompt. Raises Refused for what the chat format can't hold."""
        renderer = self._renderer.at_effort(ask.effort) if self._renderer else None
        root = self._roots.setdefault(_root(ask), Node(None))
        found = match(root, ask.messages)
        try:
            pieces = await self._pieces(renderer, found.node, found.new, ask)
            node = self._hang(record, found.node, found.new, pieces, ask)
            return await self._tokens(record, renderer, node, ask)
        except RenderError as error:
            raise ProxyRequestError(f"the model's chat format can't hold this request: {error}") from error

    async def _pieces(
        self, renderer: Renderer | None, node: Node, new: tuple[Message, ...], ask: Ask
    ) -> list[list[int]]:
        """The tokens of new messages in front of the first turn; those behind one have theirs in the turn that reads them."""
        path = node.path()
        spoken = any(step.turn or (step.message and step.message.role == "assistant") for step in path)
        until = next((i for i, message in enumerate(new) if message.role == "assistant"), len(new))
        if renderer is None or spoken or until == 0:
            return [[] for _ in new]
        known = [step.message for step in path if step.message]
        held = node.held.all() if node.held else []
        first = await aside(new[:until], opening, renderer, known, held, new[:until], ask.tools)
        return [*first, *([] for _ in new[until:])]

    def _hang(self, record: Record, node: Node, new: tuple[Message, ...], pieces: list[list[int]], ask: Ask) -> Node:
        for message, ids in zip(new, pieces, strict=True):
            if self._renderer is None and (turn := self._turns.get(message_key(message))) is not None:
                message = message.as_provided(turn)  # a turn of this session in a history of the agent's own making
            begins = node.message is None
            foreign = {"tools": list(ask.tools)} if begins and ask.tools != self._tools else {}
            node = record.message(node, message, ids, message.call_id in ask.failed, foreign)
            self._calls += len(message.calls)
        return node

    async def _tokens(self, record: Record, renderer: Renderer | None, node: Node, ask: Ask) -> _Place:
        """The prompt of the conversation that ends in `node`."""
        if renderer is None:
            return _Place(node, None, node.entry, None, [], ())
        if node.fork is not None:
            entry, fork = node.fork
            return _Place(node, renderer, entry, fork, [], tuple(fork.ids))
        path = node.path()
        turns = [i for i, step in enumerate(path) if step.turn]
        turn = turns[-1] if turns else None
        sampled = (path[turn].sampled or []) if turn is not None else []
        held = node.held.all() if node.held else []
        messages = [step.message for step in path if step.message]
        prompt = await continue_prompt(renderer, held, messages, turn, sampled, ask.tools)
        if not prompt.forks:
            return _Place(node, renderer, node.entry, node.held, prompt.follows, prompt.ids)
        node.fork = record.fork(node, prompt.follows)
        return _Place(node, renderer, *node.fork, [], prompt.ids)

    def _request(self, place: _Place, ask: Ask, telling: TurnDeltas | None) -> Request:
        path = place.node.path()
        limit = ask.max_tokens or self._settings.max_tokens
        if self._settings.context_tokens is not None and place.renderer is not None:
            left = self._settings.context_tokens - len(place.prompt)
            if left < 1:
                raise ProxyRequestError(
                    f"context_length_exceeded: the prompt has {len(place.prompt)} tokens and the model's context is "
                    f"{self._settings.context_tokens}; shorten the conversation"
                )
            limit = min(limit, left)
        return Request(
            session_id=self._name(path),
            messages=tuple(step.message for step in path if step.message),
            tools=ask.tools,
            prompt_ids=place.prompt,
            stop_ids=place.renderer.stop_ids if place.renderer else (),
            max_tokens=limit,
            temperature=ask.temperature,
            seed=ask.seed,
            on_delta=telling.add if telling else None,
        )

    def _name(self, path: list[Node]) -> str:
        """A policy keeps one cache a session, in use by one request at a time: sub-agents get their own."""
        first = next((step.parent for step in path if step.turn), path[-1])
        assert first is not None
        return self._names.setdefault(first, f"{self.id}.{len(self._names)}" if self._names else self.id)

    def _served(self, record: Record, place: _Place, answer: Completion) -> tuple[_Place, Completion]:
        """Where an answer goes whose server says as what it rendered the prompt: behind the tokens held that the prompt begins with, or
        behind a fork. Tokens of another chat format than the one to record in are left out."""
        if answer.tokens is None or not answer.prompt_ids:
            return place, answer
        if self._renderer is not None and served_chat_of(self._policy) != self._renderer.fingerprint:
            return place, replace(answer, tokens=None, prompt_ids=())
        prompt = answer.prompt_ids
        if prompt == place.prompt:
            return place, answer
        holder = next((node for node in reversed(place.node.path()) if node.held is not None), None)
        held = holder.held.all() if holder is not None and holder.held is not None else []
        if self._renderer is None and list(prompt[: len(held)]) == held:
            entry, chain = (None, None) if holder is None else (holder.entry, holder.held)
            return replace(place, entry=entry, held=chain, lead=list(prompt[len(held) :]), prompt=prompt), answer
        if place.node.fork is None or place.node.fork[1].ids != list(prompt):
            place.node.fork = record.fork(place.node, list(prompt))
        entry, chain = place.node.fork
        return replace(place, entry=entry, held=chain, lead=[], prompt=prompt), answer

    def _take(
        self, record: Record, place: _Place, ask: Ask, answer: Completion, seconds: float, telling: TurnDeltas | None
    ) -> Completion:
        """Record an answer: as it was sampled, or rendered once as if it had been (see `agent/harness/transcript.py`). An agent that takes one call
        gets the first; tokens stay as sampled, so that its next request is another branch."""
        message, sampled = answer.message, answer.tokens
        if place.renderer is not None:
            if sampled is None:
                ids = self._rendered(place.renderer, answer)
                sampled = SampledTokens(ids, [0.0] * len(ids), [-1] * len(ids))
            message = place.renderer.parse(sampled.ids, tools=ask.tools, first_call=self._calls)
            message = message.as_provided(answer.message) if answer.message is not None else message
        if message is None:
            raise PolicyError("the policy gave tokens, and this endpoint has no renderer to read them")
        foreign: dict[str, Any] = {"ignored": list(ask.ignored)} if ask.ignored else {}
        delivered = message
        if ask.one_call and len(message.calls) > 1:
            delivered = replace(message, calls=message.calls[:1])
            foreign["undelivered_calls"] = [call.to_json() for call in message.calls[1:]]
        if place.renderer is None:
            message = delivered = self._distinguished(delivered)
        usage = answer.usage
        if sampled is not None and not usage.input_tokens + usage.output_tokens:
            usage = Usage(len(place.prompt), 0, len(sampled.ids), round(seconds, 4))
        completion = Completion(
            message=delivered, tokens=sampled, finish=answer.finish, usage=usage, prompt_ids=place.prompt
        )
        heard = telling.heard(message) if telling else message
        self._turns |= {message_key(message): message, message_key(heard): message}
        record.turn(place.node, message, completion, (place.entry, place.held), place.lead, sampled, foreign, heard)
        self._calls += len(message.calls)
        self._said = message.text
        return completion

    def _distinguished(self, message: Message) -> Message:
        """With ids of calls that the session has not seen: some servers number those of each turn from the start, and agents take two
        calls of one id for one."""
        calls = []
        for call in message.calls:
            calls.append(replace(call, id=fresh_id(call.id, self._call_ids)))
            self._call_ids.add(calls[-1].id)
        return replace(message, calls=tuple(calls))

    def _rendered(self, renderer: Renderer, answer: Completion) -> list[int]:
        if answer.message is None:
            raise PolicyError("the policy gave neither a message nor tokens")
        try:
            return renderer.answer(answer.message, first_call=self._calls)
        except RenderError as error:
            raise ProxyRequestError(f"the chat format to record in can't hold this answer: {error}") from error


def _root(ask: Ask) -> str:
    """Conversations with other tools, or rendered with another effort, share no prompt."""
    return hashlib.sha256(json.dumps([ask.tools, ask.effort], sort_keys=True).encode()).hexdigest()


def _ends(root: Node) -> int:
    """Turns that no later turn goes on from."""
    ends = 0
    open_nodes = [root]
    order: list[Node] = []
    while open_nodes:
        order.append(node := open_nodes.pop())
        open_nodes += {child for same in node.children.values() for child in same}  # a turn may be known by two texts
    goes_on: set[Node] = set()
    for node in reversed(order):  # children before their parents
        ends += node.turn and node not in goes_on
        if (node.turn or node in goes_on) and node.parent is not None:
            goes_on.add(node.parent)
    return ends
