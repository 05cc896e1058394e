"""A turn in pieces: the listener's pieces equal the delivered turn, and a caller without a listener is not disturbed."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from drafting_lab import drafted
from engine_lab import ask, prompt, small_model

from etude.agent.chat.byte_tokenizer import byte_tokenizer
from etude.agent.chat.nano import NanoRenderer
from etude.learn.engine.core import EngineCore
from etude.learn.engine.policy import EnginePolicy
from etude.learn.engine.service import EngineThread
from etude.learn.engine.settings import EngineSettings

SETTINGS = EngineSettings(max_slots=4, max_batch=4, max_len=128)


class Letters:
    """A chat format of letters; a listener that keeps what it is fed."""

    def __init__(self) -> None:
        self.fed: list[list[int]] = []

    def listen(self) -> Any:
        return self

    def feed(self, ids: Sequence[int]) -> list[tuple[str, str]]:
        self.fed.append(list(ids))
        return [("text", f"{token} ") for token in ids]


@pytest.mark.parametrize("drafts", [0, 3])
async def test_the_pieces_are_the_tokens_each_once_in_their_order(drafts: int) -> None:
    settings = SETTINGS.model_copy(update={"draft_tokens": drafts})
    letters, pieces = Letters(), []
    model = drafted(small_model("deepseek_v3"), drafts) if drafts else small_model("deepseek_v3")
    policy = EnginePolicy.start(model, settings, renderer=letters)  # pyright: ignore[reportArgumentType]
    request = ask("s", prompt(1, 5), max_tokens=40, on_delta=lambda part, piece: pieces.append((part, piece)))
    answer = await policy.complete(request)
    policy.close()
    assert answer.tokens is not None
    assert "".join(piece for _, piece in pieces) == "".join(f"{token} " for token in answer.tokens.ids)
    assert len(letters.fed) > 3, "they came while it was sampled"


async def test_a_listener_changes_nothing_of_what_is_sampled() -> None:
    async def sampled(**listening: Any) -> list[list[int]]:
        policy = EnginePolicy.start(small_model("deepseek_v3"), SETTINGS, renderer=NanoRenderer(byte_tokenizer()))
        turns = [policy.complete(ask(f"s{n}", prompt(n, 5), max_tokens=20, seed=n, **listening)) for n in range(6)]
        answers = await asyncio.gather(*turns)
        policy.close()
        return [answer.tokens.ids for answer in answers if answer.tokens is not None]

    assert await sampled(on_delta=lambda part, piece: None) == await sampled()


async def test_a_turn_that_was_given_up_is_not_reported_any_more() -> None:
    pieces: list[str] = []
    policy = EnginePolicy.start(small_model("deepseek_v3"), SETTINGS, renderer=Letters())  # pyright: ignore
    request = ask("s", prompt(1, 5), max_tokens=5000, on_delta=lambda part, piece: pieces.append(piece))
    turn = asyncio.create_task(policy.complete(request))
    while not pieces:
        await asyncio.sleep(0.001)
    turn.cancel()
    await asyncio.gather(turn, return_exceptions=True)
    count = len(pieces)
    await asyncio.sleep(0.05)
    policy.close()
    assert len(pieces) == count and policy.thread._listeners == {}


def test_no_one_who_does_not_listen_is_looked_for() -> None:
    """What rollouts pay for the seam: a look at an empty table in each step."""
    core = EngineCore(small_model("deepseek_v3"), SETTINGS)
    core.sampled = lambda ticket, start: pytest.fail("no one listens")  # type: ignore[method-assign]
    done: list[Any] = []
    with EngineThread(core) as thread:
        thread.submit(ask("s", prompt(1, 5)), done.append).result(5)
        while not done:
            pass
    assert done[0].usage.output_tokens == 12
