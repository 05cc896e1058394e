"""A turn that is no answer (empty, filtered, ended by an error) is asked for once more, then the request has failed."""

from __future__ import annotations

from typing import Any, Callable

import pytest

from etude.chat.nano import NanoRenderer
from etude.harness.agent import Agent
from etude.trace.message import EMPTY, FAILED, FILTERED, Message

Make = Callable[..., Agent]
NOTHING = [
    pytest.param(Message("assistant"), EMPTY, id="empty"),
    pytest.param(Message("assistant", " \n"), EMPTY, id="blank"),
    pytest.param(Message("assistant", thinking="let me call the tool"), EMPTY, id="thinking alone"),
    pytest.param(Message("assistant", "I can", problem=FILTERED), FILTERED, id="filtered"),
    pytest.param(Message("assistant", "I c", problem=FAILED), FAILED, id="failed"),
]


@pytest.mark.parametrize(("nothing", "why"), NOTHING)
async def test_a_turn_that_is_no_answer_is_asked_for_once_more_with_a_notice(
    agent: Make, nothing: Message, why: str
) -> None:
    outcome = await agent([nothing, Message("assistant", "here it is")]).run()
    assert (outcome.reason, outcome.message) == ("message", "here it is")
    [notice] = outcome.session.of("tool_result")
    assert notice.data["text"] == f"malformed: {why}; say your answer, or call a tool" and notice.data["failed"]
    assert outcome.counters["malformed_turns"] == 1


@pytest.mark.parametrize(("nothing", "why"), NOTHING)
async def test_two_such_turns_in_a_row_end_the_request_as_no_answer(agent: Make, nothing: Message, why: str) -> None:
    outcome = await agent([nothing, nothing, Message("assistant", "too late")]).run()
    assert (outcome.reason, outcome.message) == ("no_answer", "")
    assert outcome.session.of("end")[0].data["reason"] == "no_answer"
    assert not outcome.session.of("fault"), "a model's empty turn is no fault of ours: the attempt is scored"


async def test_a_proper_turn_between_two_empty_ones_begins_the_count_again(agent: Make, scene: Any) -> None:
    look = scene.turn(("view", {"path": "shop.py"}))
    script = [Message("assistant"), look, Message("assistant"), Message("assistant", "done")]
    assert (await agent(script).run()).reason == "message"


async def test_the_sampled_tokens_of_an_empty_turn_stay_as_they_are(
    agent: Make, renderer: NanoRenderer, scene: Any
) -> None:
    outcome = await agent(scene.token_policy(renderer, [Message("assistant"), *scene.GOOD]), renderer=renderer).run()
    assert outcome.reason == "done"
    [segment] = outcome.segments
    first = outcome.session.of("completion")[0]
    count = len(first.tokens.logprobs)
    assert segment.sampled.sum() == sum(len(e.tokens.logprobs) for e in outcome.session.of("completion")) and count
