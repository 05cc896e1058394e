"""A policy around a policy: the breaker tells an outage from one bad conversation."""

from __future__ import annotations

import pytest

from etude.agent.policy.breaker import PATIENCE, Breaker, EndpointGone
from etude.agent.policy.protocol import PolicyError, Request
from etude.agent.policy.scripted import ScriptedPolicy
from etude.core.trace.completion import Completion, Usage
from etude.core.trace.message import Message

OK = Completion(Message("assistant", "ok"), usage=Usage(10, 4, 2, 0.5))


def request(session: str = "s") -> Request:
    return Request(session, (Message("user", "hi"),))


def playing(*turns: Completion | PolicyError) -> ScriptedPolicy:
    left = list(turns)

    def answer(asked: Request) -> Completion:
        turn = left.pop(0)
        if isinstance(turn, PolicyError):
            raise turn
        return turn

    return ScriptedPolicy(answer)


async def test_lasting_failures_in_a_row_are_an_outage_and_no_policy_error() -> None:
    breaker = Breaker(playing(*[PolicyError("down")] * PATIENCE))
    for _ in range(PATIENCE - 1):
        with pytest.raises(PolicyError):
            await breaker.complete(request())
    with pytest.raises(EndpointGone, match="down"):
        await breaker.complete(request())
    assert not issubclass(EndpointGone, PolicyError)  # else an attempt would try again


@pytest.mark.parametrize("between", [OK, PolicyError("too long", infra=False)])
async def test_an_answer_in_between_even_a_refusal_starts_the_count_again(between: Completion | PolicyError) -> None:
    breaker = Breaker(playing(PolicyError("busy"), between, PolicyError("busy"), OK))
    with pytest.raises(PolicyError, match="busy"):
        await breaker.complete(request())
    if isinstance(between, PolicyError):
        with pytest.raises(PolicyError, match="too long"):
            await breaker.complete(request())
    else:
        assert await breaker.complete(request()) is OK
    with pytest.raises(PolicyError, match="busy"):
        await breaker.complete(request())
    assert await breaker.complete(request()) is OK
