"""Promise 2 under any agent: whatever it repeats, forgets or rewrites, the file holds the ids the policy saw and sampled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from captured import Agent, TokenPolicy, run  # pyright: ignore[reportMissingImports]
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from etude.agent.policy.protocol import Request
from etude.core.trace.completion import Completion
from etude.core.trace.message import Message
from etude.core.trace.session import Session

# What an agent does next with one of its conversations.
MOVES = st.lists(
    st.tuples(st.sampled_from(["go on", "speak", "again", "rewrite", "compact", "strip", "rewind"]), st.integers(0, 5)),
    max_size=9,
)


@dataclass
class Seen(TokenPolicy):
    """Keeps what it answered."""

    renderer: Any
    answers: list[list[int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(self.renderer, self._next)

    def _next(self, request: Request) -> Message:
        n = len(self.requests)
        return Message("assistant", f"said {n}", f"thought {n}") if n % 3 == 0 else run(f"step {n}", f"hm {n}")

    async def complete(self, request: Request) -> Completion:
        answer = await super().complete(request)
        assert answer.tokens is not None
        self.answers.append(answer.tokens.ids)
        return answer


@pytest.mark.parametrize("family", ["qwen3", "qwen3-coder", "kimi-k2.5"])
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(moves=MOVES)
def test_every_turn_s_path_is_the_prompt_and_the_answer_and_every_sampled_token_counts_once(
    tmp_path_factory: pytest.TempPathFactory, make_renderer: Callable[..., Any], family: str, moves: Any
) -> None:
    asyncio.run(_play(tmp_path_factory.mktemp("s"), make_renderer(family), moves))


async def _play(folder: Path, renderer: Any, moves: list[tuple[str, int]]) -> None:
    policy = Seen(renderer)
    agent = Agent(folder, policy, renderer)
    talks = [[Message("system", "You fix."), Message("user", "Fix it")]]
    talks[0].append(await agent.ask(*talks[0]))
    for move, which in moves:
        talk = _moved(list(talks[which % len(talks)]), move)
        talks.append([*talk, await agent.ask(*talk)])
    summary, session = await agent.end()
    _check(session, policy)
    segments = session.segments()
    assert sum(int(s.sampled.sum()) for s in segments) == summary["sampled_tokens"] == sum(map(len, policy.answers))
    versions = sorted({int(v) for s in segments for v in s.versions[s.sampled]})
    assert versions == list(range(1, len(policy.requests) + 1))


def _check(session: Session, policy: Seen) -> None:
    entries = {entry.id: entry for entry in session.entries}
    for entry, request, answer in zip(session.of("completion"), policy.requests, policy.answers, strict=True):
        ids: list[int] = []
        at = entry
        while at.tokens is not None:
            ids = [*at.tokens.ids, *ids]
            if at.parent is None:
                break
            at = entries[at.parent]
        assert ids == [*request.prompt_ids, *answer]


def _moved(talk: list[Message], move: str) -> list[Message]:
    last = talk[-1]
    if move == "again":
        return talk[:-1]
    if move == "compact":
        return [talk[0], Message("user", f"So far {len(talk)} messages. Go on.")]
    if move == "rewind" and len(talk) > 3:
        return [*talk[:2], Message("user", "No: start again.")]
    if move == "rewrite":
        talk = [Message("tool", "(elided)", call_id=m.call_id) if m.role == "tool" else m for m in talk]
    if move == "strip":
        talk = [Message("assistant", m.text, calls=m.calls) if m.role == "assistant" else m for m in talk]
    if last.calls:
        talk = [*talk, Message("tool", "some output", call_id=last.calls[0].id)]
    return talk if last.calls and move != "speak" else [*talk, Message("user", f"And {len(talk)}?")]
