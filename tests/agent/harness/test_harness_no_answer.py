"""A turn that is no answer (empty, filtered, an error) is asked for once more, a text that was cut off twice; then the request has failed."""

from __future__ import annotations

from typing import Any, Callable

import pytest

from etude.agent.chat.nano import NanoRenderer
from etude.agent.harness.agent import Agent
from etude.agent.policy.scripted import ScriptedPolicy
from etude.core.trace.completion import Completion, Usage
from etude.core.trace.message import CUT_OFF, EMPTY, FAILED, FILTERED, Message

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
    assert first.tokens is not None
    count = len(first.tokens.logprobs)
    assert (
        segment.sampled.sum() == sum(len(e.tokens.logprobs) for e in outcome.session.of("completion") if e.tokens)
        and count
    )


# An answer that the limit of a turn cut off is not malformed: the model is asked to go on. Three in a row are no answer, or a model that
# never ends would use up every turn of the request.
CUT = Message("assistant", "The total is wrong because", problem=CUT_OFF)
CUT_NOTICE = "your answer was cut off at {} tokens, the limit of one turn; continue where it ended, or be briefer"


@pytest.mark.parametrize(
    "cut", [CUT, Message("assistant", thinking="The total", problem=CUT_OFF)], ids=["text", "thinking"]
)
async def test_an_answer_that_was_cut_off_is_continued_after_a_notice_that_says_where(
    agent: Make, cut: Message, scene: Any
) -> None:
    outcome = await agent([cut, Message("assistant", "it subtracts")]).run()
    assert (outcome.reason, outcome.message) == ("message", "it subtracts")
    [notice] = outcome.session.of("tool_result")
    assert notice.data["text"] == CUT_NOTICE.format(scene.ROOMY.max_tokens_per_turn) and notice.data["failed"]


async def test_the_notice_names_the_tokens_that_the_endpoint_counted(agent: Make) -> None:
    answers = [Completion(message=CUT, finish="length", usage=Usage(output_tokens=1234))]
    outcome = await agent(ScriptedPolicy([*answers, Message("assistant", "so")])).run()
    assert outcome.session.of("tool_result")[0].data["text"] == CUT_NOTICE.format("1,234")


async def test_the_third_answer_in_a_row_that_was_cut_off_ends_the_request(agent: Make) -> None:
    assert (await agent([CUT, CUT, Message("assistant", "it subtracts")]).run()).reason == "message"
    outcome = await agent([CUT, CUT, CUT, Message("assistant", "too late")]).run()
    assert outcome.reason == "no_answer" and len(outcome.session.of("completion")) == 3
    assert not outcome.session.of("fault"), "the attempt is scored"


async def test_a_call_between_two_cut_off_answers_begins_the_count_again(agent: Make, scene: Any) -> None:
    look = scene.turn(("view", {"path": "shop.py"}))
    assert (await agent([CUT, CUT, look, CUT, CUT, Message("assistant", "done")]).run()).reason == "message"


async def test_a_sampled_answer_without_its_end_gets_the_same_notice_and_keeps_its_tokens(
    agent: Make, renderer: NanoRenderer, scene: Any
) -> None:
    outcome = await agent(scene.token_policy(renderer, [[50, 51, 52], scene.done()]), renderer=renderer).run()
    assert outcome.reason == "done"
    assert outcome.session.of("tool_result")[0].data["text"] == CUT_NOTICE.format(3)
    assert outcome.segments[0].sampled.sum() == 3 + len(renderer.render_message(scene.done())) - 1
    outcome = await agent(scene.token_policy(renderer, [[50], [51], [52], scene.done()]), renderer=renderer).run()
    assert outcome.reason == "no_answer"


async def test_a_call_that_was_cut_off_stays_a_malformed_turn_which_may_come_again(
    agent: Make, renderer: NanoRenderer, scene: Any
) -> None:
    """What a call would do can't be continued in a next turn, and a model may need more than one try to make it shorter."""
    cut = renderer.render_message(scene.turn(("view", {"path": "shop.py"})))[1:-1]
    outcome = await agent(scene.token_policy(renderer, [cut, cut, scene.done()]), renderer=renderer).run()
    texts = [entry.data["text"] for entry in outcome.session.of("tool_result")]
    assert texts[:2] == [f"malformed: {CUT_OFF}"] * 2 and outcome.reason == "done"
