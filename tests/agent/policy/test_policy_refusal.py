"""What refusals say, in the words of the servers: window, prompt, largest answer, and which kind of refusal it is."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.agent.policy.refusal import LEAST_ANSWER_TOKENS, Refusal, error_of, error_words, read_refusal, status_of

OVERFLOWS = [
    ("This model's maximum context length is 8192 tokens. However, your messages resulted in 9001 tokens. Please reduce the "
     "length of the messages.", 8192, None),
    ("This model's maximum context length is 8,192 tokens. However, you requested 17193 tokens (9001 in the messages, 8192 in "
     "the completion). Please reduce the length of the messages or completion.", 8192, 9001),
    ("This endpoint's maximum context length is 131072 tokens. However, you requested about 140000 tokens (131808 of text "
     "input, 8192 in the output). Please reduce the length of either one.", 131072, 131808),
    ("This endpoint's maximum context length is 131072 tokens. However, you requested about 149000 tokens (131808 of text "
     "input, 9000 of tool input, 8192 in the output).", 131072, 140808),
    ('{"error":{"code":400,"message":"the request exceeds the available context size. try increasing it",'
     '"type":"exceed_context_size_error","n_prompt_tokens":9000,"n_ctx":8192}}', 8192, 9000),
    ("request (9000 tokens) exceeds the available context size (8192 tokens), try increasing it", 8192, 9000),
    ("The decoder prompt (length 9000) is longer than the maximum model length of 8192.", 8192, 9000),
    ("The input (9000 tokens) is longer than the model's context length (8192 tokens).", 8192, 9000),
    ("Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length", 32768, 40000),
    ("`inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000 `inputs` tokens and 512 `max_new_tokens`", 4096, 5000),
    ("This model's maximum prompt length is 131072 but the request contains 140000 tokens.", 131072, 140000),
    ("The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).", 1048576, 1200000),
    ("prompt is too long: 210000 tokens > 200000 maximum", 200000, 210000),
    ("Trying to keep the first 9000 tokens when context the overflows. However, the model is loaded with context length of "
     "only 4096 tokens", 4096, 9000),
    ("Your input exceeds the context window of this model. Please adjust your input and try again.", None, None),
    ("Input is too long for requested model.", None, None),
    ('{"error":{"message":"Please reduce the length of the messages or completion.","code":"context_length_exceeded"}}', None, None),
]  # fmt: skip
OUTPUTS = [
    ("'max_tokens' or 'max_completion_tokens' is too large: 8192. This model's maximum context length is 12000 tokens and your "
     "request has 4048 input tokens (8192 > 12000 - 4048).", 12000, 7936),
    ("This model's maximum context length is 12000 tokens. However, you requested 12240 tokens (4048 in the messages, 8192 in "
     "the completion). Please reduce the length of the messages or completion.", 12000, 7936),
    ("You passed 4001 input tokens and requested 8192 output tokens. However, the model's context length is only 8192 tokens, "
     "resulting in a maximum input length of 0 tokens.", 8192, 4175),
    ("Requested token count exceeds the model's maximum context length of 8192 tokens. You requested a total of 9000 tokens: "
     "808 tokens from the input messages and 8192 tokens for the completion.", 8192, 7368),
    ("max_tokens is too large: 8192. This model supports at most 4096 completion tokens, whereas you provided 8192.", None, 4096),
    ("max_tokens: 8192 > 4096, which is the maximum allowed number of output tokens for it", None, 4096),
    ("`max_tokens` must be less than or equal to `4096`, the maximum value for `max_tokens` is less than the `context_window` for "
     "this model", None, 4096),
    ("Invalid max_tokens value, the valid range of max_tokens is [1, 4096]", None, 4096),
]  # fmt: skip


@pytest.mark.parametrize(("text", "window", "prompt"), OVERFLOWS)
def test_a_conversation_that_is_too_long_is_an_overflow_with_what_is_said_of_it(
    text: str, window: int | None, prompt: int | None
) -> None:
    assert read_refusal(400, text, asked_tokens=8192) == Refusal("overflow", window, prompt)


@pytest.mark.parametrize(("text", "window", "room"), OUTPUTS)
def test_an_answer_that_is_too_large_says_how_large_it_may_be(text: str, window: int | None, room: int) -> None:
    found = read_refusal(400, text, asked_tokens=8192)
    assert (found.kind, found.window_tokens, found.answer_tokens) == ("output", window, room)


def test_room_for_less_than_a_few_sentences_is_an_overflow() -> None:
    text = "maximum context length is 12000 tokens and your request has 11900 input tokens"
    assert read_refusal(400, text, asked_tokens=8192) == Refusal("overflow", 12000, 11900)


@pytest.mark.parametrize(
    ("status", "text", "kind"),
    [
        (413, "payload too large", "overflow"),
        (500, "the request exceeds the available context size", "overflow"),
        (429, "Request too large: limit 30000 tokens per min, maximum context length", "other"),
        (401, "your token is too long", "other"),
        (400, "The response was filtered due to the prompt triggering content management policy", "filtered"),
        (400, "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.", "field"),
        (400, "'max_tokens' is deprecated in favor of 'max_completion_tokens'", "field"),
        (400, "Unrecognized request argument supplied: stream_options", "other"),
        (400, "tool_use_failed: Failed to call a function", "call"),
    ],
)
def test_other_refusals_are_distinguished(status: int, text: str, kind: str) -> None:
    assert read_refusal(status, text, asked_tokens=8192).kind == kind


@given(st.integers(100, 599), st.text(max_size=80), st.integers(1, 10_000))
def test_any_text_has_a_kind_and_an_answer_is_smaller_than_the_one_asked_for(
    status: int, text: str, asked: int
) -> None:
    found = read_refusal(status, text, asked_tokens=asked)
    assert found.kind != "output" or LEAST_ANSWER_TOKENS <= (found.answer_tokens or 0) < asked


@pytest.mark.parametrize(
    ("body", "said", "status"),
    [
        ({"error": {"message": "busy", "code": 503}}, "busy", 503),
        ({"error": {"message": "busy", "code": "429"}}, "busy", 429),
        ({"error": {"message": "no", "type": "invalid_request_error"}}, "no", 400),
        ({"error": {"message": "no", "code": "context_length_exceeded"}}, "no", 400),
        ({"error": {"message": "Provider returned error", "metadata": {"raw": "why"}}}, "Provider returned error: why", 502),
        ({"error": "busy"}, "busy", 502),
        ([{"error": {"message": "no", "code": 400}}], "no", 400),
        ({"object": "error", "message": "prompt is too long: 9 tokens > 8 maximum", "code": None}, "prompt is too long: 9 tokens > 8 maximum", 400),
        ({"detail": "no model"}, "no model", 502),
        ({"error": {"code": 42}}, '{"code": 42}', 502),
    ],
)  # fmt: skip
def test_an_error_in_a_body_has_words_and_the_status_that_it_means(body: Any, said: str, status: int) -> None:
    assert (error_of(body), status_of(body)) == (said, status)


def test_what_is_no_error_is_none_and_a_text_speaks_for_itself() -> None:
    assert error_of({"choices": [], "message": "x"}) is None and error_of({"error": None, "choices": []}) is None
    assert error_words("<html>") == "<html>" and error_words('{"error": {"message": "no"}}') == "no"


@pytest.mark.parametrize(
    "text",
    [
        "temperature must be <= 2",
        "top_logprobs must be <= 20",
        "'n' must be <= 128",
        "seed must be <= 2147483647",
        "Invalid 'messages[2].tool_calls[0].id': string too long. Expected a string with maximum length 40, but got 52.",
        "Invalid 'tools': array too long. Expected an array with maximum length 128, but got an array with length 140.",
        "Invalid 'tools[0].function.name': string too long. Expected a string with maximum length 64.",
        "Invalid 'prompt_cache_key': string too long. Expected a string with maximum length 64.",
        "The tool name is too long",
        "tool_call_id: the id is too long",
        "function description too long",
    ],
)
def test_a_limit_of_one_field_is_no_limit_of_the_conversation(text: str) -> None:
    assert read_refusal(400, text, asked_tokens=8192) == Refusal("other")
    assert status_of({"error": {"message": text}}) == 502


@pytest.mark.parametrize(
    "text",
    [
        "Invalid 'messages[1].content': string too long. Expected a string with maximum length 1048576.",
        "Invalid 'messages[1].content[0].text': string too long. Expected a string with maximum length 1048576.",
        "Invalid 'messages': array too long. Expected an array with maximum length 2048.",
        "Invalid 'input[3].arguments': string too long.",
        "request id 7f3a: the prompt is too long",
        "The name of the model is fine. Input is too long.",
    ],
)
def test_a_part_of_the_conversation_that_is_too_long_is_an_overflow(text: str) -> None:
    assert read_refusal(400, text, asked_tokens=8192).kind == "overflow"


def test_a_window_too_small_for_any_agent_is_not_believed() -> None:
    found = read_refusal(400, "maximum context length is 20 tokens", asked_tokens=8192)
    assert (found.kind, found.window_tokens) == ("overflow", None)


@pytest.mark.parametrize("echo", ["max_tokens ", "1", "a", "(", "'x': ", "name "])
def test_a_refusal_that_repeats_the_whole_request_is_read_at_its_ends(echo: str) -> None:
    words = "maximum context length is 8192 tokens"
    for text in (f"{words} {echo * 200_000}", f"{echo * 200_000} {words}"):
        assert read_refusal(400, text, asked_tokens=9000).window_tokens == 8192
