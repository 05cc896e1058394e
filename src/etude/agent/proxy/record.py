"""The session file of a captured session: entries for messages, turns, forks and faults, written line by line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from etude.agent.metrics.of_session import counters_of
from etude.agent.proxy.graph import Node
from etude.agent.proxy.tokens import TokenChain
from etude.core.trace.completion import Completion, SampledTokens
from etude.core.trace.entry import EntryTokens, SessionHeader, turn_tokens
from etude.core.trace.message import Message
from etude.core.trace.writer import SessionWriter


class Record:
    """Keeps to the format of `docs/session-format.md`; `tokens` says whether entries have any."""

    def __init__(self, path: Path, header: SessionHeader, *, tokens: bool) -> None:
        self.counts: Counter[str] = Counter()
        self.effort = header.effort
        self._tokens = tokens
        self._writer = SessionWriter(path, header, every="line")

    def message(
        self, parent: Node, message: Message, ids: Sequence[int], failed: bool, foreign: dict[str, Any]
    ) -> Node:
        """A message that the agent sent, hung below `parent`."""
        kind, data = "message", message.to_json()
        if message.role == "tool":
            names = {call.id: call.name for node in parent.path() if node.message for call in node.message.calls}
            name = names.get(message.call_id or "", "")
            kind, data = (
                "tool_result",
                {"call_id": message.call_id, "name": name, "text": message.text, "failed": failed},
            )
        tokens = EntryTokens(list(ids), lead=len(ids)) if self._tokens else None
        data |= {"foreign": foreign} if foreign else {}
        entry = self._writer.append(kind, data, parent=parent.entry, tokens=tokens)
        held = TokenChain(list(ids), parent.held) if self._tokens else None
        return parent.add(Node(message, entry=entry, held=held))

    def fork(self, node: Node, ids: list[int]) -> tuple[int, TokenChain]:
        """A new root that holds the whole conversation, because the tokens held can't go on."""
        self.counts["forks"] += 1
        entry = self._writer.append("fork", {"held_by": node.entry}, tokens=EntryTokens(ids, lead=len(ids)))
        return entry, TokenChain(ids)

    def turn(
        self,
        node: Node,
        message: Message,
        answer: Completion,
        place: tuple[int | None, TokenChain | None],
        lead: list[int],
        sampled: SampledTokens | None,
        foreign: dict[str, Any],
        heard: Message,
    ) -> None:
        """What the policy answered to the conversation that ends in `node`; `place` is the entry it hangs on and its tokens.
        `heard` is the turn as it was sent to its agent."""
        self.counts["turns"] += 1
        self.counts["malformed_turns"] += message.problem is not None
        self.counts["calls"] += len(message.calls)
        data = {"message": message.to_json(), "finish": answer.finish, "usage": vars(answer.usage)}
        data |= {"foreign": foreign} if foreign else {}
        tokens = routes = held = None
        if sampled is not None:
            self.counts["sampled_tokens"] += len(sampled.ids)
            held = TokenChain([*lead, *sampled.ids], place[1])
            tokens, routes = turn_tokens(lead, sampled)
        entry = self._writer.append("completion", data, parent=place[0], tokens=tokens, routes=routes)
        ids = sampled.ids if sampled else None
        node.add(
            Node(message, entry=entry, held=held, sampled=ids, turn=True, heard=None if heard == message else heard)
        )

    def effort_is(self, effort: Any) -> None:
        """The effort of the turns from here on."""
        if effort is not None and effort != self.effort:
            self.effort = effort
            self._writer.append("effort", {"effort": effort})

    def fault(self, kind: str, message: str, *, infra: bool) -> None:
        self._writer.append("fault", {"kind": kind, "message": message, "infra": infra})

    def end(self, reason: str, message: str, counters: dict[str, int]) -> int:
        """The last lines; how many training samples the session holds."""
        own = {name: float(count) for name, count in counters.items()}
        self._writer.append("counters", {"counters": {**counters_of(self._writer.session), **own}})
        self._writer.append("end", {"reason": reason, "message": message})
        self._writer.close()
        return len(self._writer.session.segments())
