"""The openai SDK's own types accept our answers, whole and streamed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from etude.agent.policy.wire import chat, responses
from etude.agent.policy.wire.answer_stream import AnswerStream
from etude.agent.policy.wire.chat_stream import ChatStream
from etude.agent.policy.wire.responses_stream import ResponsesStream
from etude.core.trace.completion import Completion, Usage
from etude.core.trace.message import Message, ToolCall

CALLED = Message("assistant", "I look.", "Hm.", (ToolCall("k0", "read", {"path": "a"}), ToolCall("k1", "list", {})))
ANSWERS = [
    Completion(message=CALLED, usage=Usage(10, 4, 6)),
    Completion(message=Message("assistant", "Done."), usage=Usage(3, 0, 2)),
    Completion(message=Message("assistant", "Half of"), finish="length"),
    Completion(message=Message("assistant", "", "only thought")),
]


def sent(row: Any) -> Any:
    """As it comes over the wire."""
    return json.loads(json.dumps(row))


@pytest.mark.parametrize("answer", ANSWERS)
def test_chat_completions_are_what_the_sdk_expects(answer: Completion) -> None:
    body = chat.chat_completion(answer, id="x", model="m", created=1).model_dump(exclude_none=True)
    read = ChatCompletion.model_validate(sent({**body, "choices": [{**c, "logprobs": None} for c in body["choices"]]}))
    assert answer.message is not None
    assert (read.choices[0].message.content or "") == answer.message.text
    assert [call.id for call in read.choices[0].message.tool_calls or []] == [c.id for c in answer.message.calls]
    assert read.usage is not None and read.usage.total_tokens == answer.usage.input_tokens + answer.usage.output_tokens


@pytest.mark.parametrize("answer", ANSWERS)
def test_chat_chunks_are_what_the_sdk_expects(answer: Completion) -> None:
    rows = [*AnswerStream(ChatStream("x", "m", 1, usage=True)).close(answer)]
    read = [ChatCompletionChunk.model_validate(sent(row)) for row in rows]
    assert answer.message is not None
    assert "".join(c.choices[0].delta.content or "" for c in read if c.choices) == answer.message.text
    assert read[-1].usage is not None and not read[-1].choices


@pytest.mark.parametrize("answer", ANSWERS)
def test_responses_and_their_events_are_what_the_sdk_expects(answer: Completion) -> None:
    body = responses.response(answer, id="x", model="m", created_at=1)
    read = Response.model_validate(sent(responses.wire_form(body)))
    assert answer.message is not None
    assert read.output_text == answer.message.text
    events: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)

    def events_of(answer: Completion) -> list[dict[str, Any]]:
        return [*AnswerStream(ResponsesStream("x", "m", 1)).close(answer)]

    kinds = [type(events.validate_python(sent(event))).__name__ for event in events_of(answer)]
    assert kinds[0] == "ResponseCreatedEvent" and kinds[-1] in ("ResponseCompletedEvent", "ResponseIncompleteEvent")
