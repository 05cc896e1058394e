"""The message graph of a session: which conversation a request goes on with.

A node is one message, known by its parent and its content, so that a request finds the longest path it repeats and adds only
what is new. An agent may send back a turn as it can: without its thinking (most formats have no way to say it), with blanks
at its ends cut off, with other ids for its calls. That is the same turn; its node keeps what was sampled. Anything else that
differs is another message, hence another branch: compaction, sub-agents and rewritten histories need no rule of their own.
Pure.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from etude.agent.proxy.tokens import TokenChain
from etude.core.trace.message import Message

_JSON = json.JSONEncoder(sort_keys=True)  # made once: json.dumps would make one for every message


@dataclass(eq=False)
class Node:
    """A message in its place; `entry` is its line in the session, `held` the tokens up to it (none without a renderer)."""

    message: Message | None  # None: the root of conversations that share their tools and effort
    parent: Node | None = None
    entry: int | None = None
    held: TokenChain | None = None
    sampled: list[int] | None = None  # a turn of the policy's: its ids, or none where there are no tokens
    turn: bool = False
    heard: Message | None = None  # the turn as its agent was sent it in pieces, where that differs from its text
    fork: tuple[int, TokenChain] | None = None  # the root that holds this conversation from now on
    children: dict[str, list[Node]] = field(default_factory=dict)

    def add(self, node: Node) -> Node:
        """Hang a message here."""
        assert node.message is not None
        node.parent = self
        for key in {message_key(message) for message in (node.message, node.heard) if message is not None}:
            self.children.setdefault(key, []).append(node)
        return node

    def find(self, message: Message) -> Node | None:
        """The child that this message is: of several turns that differ in their thinking alone the one with this thinking, and
        the last one if the agent did not send any."""
        same = self.children.get(message_key(message), [])
        if message.thinking:
            same = [node for node in same if message.thinking.strip() in node.thoughts()]
        return same[-1] if same else None

    def thoughts(self) -> list[str]:
        """A turn's thinking, as recorded and as sent to its agent."""
        return [message.thinking.strip() for message in (self.message, self.heard) if message is not None]

    def path(self) -> list[Node]:
        """The nodes from the first message to this one."""
        path: list[Node] = []
        node: Node | None = self
        while node is not None and node.message is not None:
            path.append(node)
            node = node.parent
        return path[::-1]


@dataclass(frozen=True)
class ConversationMatch:
    """How far a conversation is known, and what of it is new."""

    node: Node
    new: tuple[Message, ...]


def match(root: Node, messages: Sequence[Message]) -> ConversationMatch:
    """The longest known path. Ids of calls in what is new are those of the session, not the agent's own."""
    node = root
    names: dict[str, str] = {}
    for i, message in enumerate(messages):
        message = _named(message, names)
        child = node.find(message)
        if child is None or child.message is None:
            return ConversationMatch(node, tuple(_named(late, names) for late in messages[i:]))
        pairs = zip(message.calls, child.message.calls, strict=True)
        names.update((theirs.id, ours.id) for theirs, ours in pairs)
        node = child
    return ConversationMatch(node, ())


def _named(message: Message, names: dict[str, str]) -> Message:
    if message.call_id is None or message.call_id not in names:
        return message
    return replace(message, call_id=names[message.call_id])


def message_key(message: Message) -> str:
    """A digest of what a message says. Calls count by name and arguments: some agents give them ids of their own."""
    text = message.text.strip() if message.role == "assistant" else message.text
    said = [message.role, text, message.call_id, [[call.name, call.arguments] for call in message.calls]]
    return hashlib.sha256(_JSON.encode(said).encode()).hexdigest()
