"""A policy that says again what a recorded session said: the same tokens with the same provenance, or the same messages."""

from __future__ import annotations

from etude.agent.policy.protocol import ContextOverflow, PolicyError, Request
from etude.core.trace.completion import Completion, SampledTokens, Usage
from etude.core.trace.entry import Entry
from etude.core.trace.message import Message
from etude.core.trace.session import Session


class ReplayPolicy:
    """For one run of one session. With tokens, every prompt must start with what the recording held before that turn: a
    difference raises PolicyError naming the position (promise 1: one harness gives the same ids everywhere)."""

    def __init__(self, session: Session) -> None:
        self.name = session.header.policy
        self._turns = session.of("completion")
        self.takes_tokens = any(entry.tokens is not None for entry in self._turns)
        self._prompts = _prompts(session) if self.takes_tokens else []
        self.window_tokens: int | None = session.header.facts.get("window_tokens")
        self._refusals = _refusals(session)
        self._next = 0

    async def complete(self, request: Request) -> Completion:
        if self._next >= len(self._turns):
            raise PolicyError(f"the recorded session has {len(self._turns)} turns; another one was asked", infra=False)
        entry, index = self._turns[self._next], self._next
        if refused := self._refusals.get(index):
            data = refused.pop(0).data
            self.window_tokens = data.get("window")
            words = "the recorded conversation was too long here"
            raise ContextOverflow(words, window_tokens=data.get("window"), prompt_tokens=data.get("prompt"))
        self._next += 1
        if not self.takes_tokens:
            # Without tokens, limits and self-summaries are decided by the usage: it belongs to the answer.
            message, usage = Message.from_json(entry.data["message"]), Usage(**entry.data["usage"])
            return Completion(message=message, finish=entry.data["finish"], usage=usage)
        self._check(request.prompt_ids, self._prompts[index], index)
        return Completion(tokens=_sampled(entry), finish=entry.data["finish"])

    async def release(self, session_id: str) -> None:
        """Keeps nothing."""

    def _check(self, asked: tuple[int, ...], recorded: list[int], turn: int) -> None:
        if list(asked) == recorded:
            return
        pairs = zip(asked, recorded, strict=False)
        at = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(asked), len(recorded)))
        raise PolicyError(
            f"turn {turn + 1}: the prompt differs from the recorded one at position {at} "
            f"({list(asked[at : at + 4])} instead of {recorded[at : at + 4]}): harness or tools changed",
            infra=False,
        )


def _refusals(session: Session) -> dict[int, list[Entry]]:
    """Before which turn the endpoint refused the conversation, and in which words."""
    found: dict[int, list[Entry]] = {}
    turns = 0
    for entry in session.of("completion", "shortened"):
        turns += entry.type == "completion"
        if entry.type == "shortened" and entry.data.get("refused"):
            found.setdefault(turns, []).append(entry)
    return found


def _sampled(entry: Entry) -> SampledTokens:
    tokens, routes = entry.tokens, entry.routes
    assert tokens is not None
    ids = tokens.ids[tokens.lead : tokens.lead + len(tokens.logprobs)]
    if routes is None:
        return SampledTokens(ids, tokens.logprobs, tokens.versions)
    return SampledTokens(ids, tokens.logprobs, tokens.versions, routes.rows, routes.start)


def _prompts(session: Session) -> list[list[int]]:
    """For every completion the ids held before it, its generation prompt included."""
    held: dict[int | None, list[int]] = {None: []}
    prompts: list[list[int]] = []
    for entry in session.entries:
        if entry.tokens is None:
            continue
        before = held[entry.parent]
        if entry.type == "completion":
            prompts.append(before + entry.tokens.ids[: entry.tokens.lead])
        held[entry.id] = before + entry.tokens.ids
    return prompts
