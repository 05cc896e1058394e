"""The tables of fields, and what happens to a field of no table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.agent.policy.wire.placeholder import placeholder
from etude.agent.proxy.ask import ProxyRequestError
from etude.agent.proxy.dialect import anthropic, chat, responses
from etude.agent.proxy.dialect.fields import Fields, check

TABLES = {"chat completions": chat.FIELDS, "messages": anthropic.FIELDS, "responses": responses.FIELDS}
PAGE = Path(__file__).parents[3] / "docs" / "capture.md"
DIALECTS = [chat.ChatDialect(), anthropic.AnthropicDialect(), responses.ResponsesDialect()]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 9) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(
        "role content type text id name input tool_calls function arguments tool_use_id call_id output summary".split()
    ), inner, max_size=5), max_leaves=12,
)  # fmt: skip


@pytest.mark.parametrize("name", TABLES)
def test_the_page_lists_every_field(name: str) -> None:
    row = next(line for line in PAGE.read_text().splitlines() if line.startswith(f"| {name} |"))
    cells = row.split("|")[2:5]
    fields = TABLES[name]
    for cell, known in zip(cells, (fields.honoured, fields.ignored, frozenset(fields.neutral)), strict=True):
        assert {word.strip("`") for word in cell.split() if word.startswith("`")} == set(known)


@given(st.dictionaries(st.sampled_from(["a", "b", "c", "d"]), st.integers(0, 2), max_size=4))
def test_a_field_has_its_effect_or_is_refused_or_noted(body: dict[str, Any]) -> None:
    fields = Fields(frozenset("a"), frozenset("b"), {"c": lambda value: value == 1})
    fine = "d" not in body and body.get("c", 1) == 1
    if fine:
        assert check(body, fields, ()) == (("b",) if "b" in body else ())
    else:
        with pytest.raises(ProxyRequestError, match="d =" if body.get("c", 1) == 1 else "[cd] ="):
            check(body, fields, ())
    assert set(check(body, fields, {"c", "d"})) <= {"b", "c", "d"}


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
@given(messages=JSON, tools=JSON)
def test_any_body_is_read_or_refused_in_words(dialect: Any, messages: Any, tools: Any) -> None:
    body = {"model": "m", "messages": messages, "tools": tools}
    if dialect.name == "openai-responses":
        body = {"model": "m", "input": messages, "tools": tools}
    elif dialect.name == "anthropic":
        body["max_tokens"] = 5
    try:
        assert dialect.read(body, ()).model == "m"
    except ProxyRequestError as refused:
        assert str(refused)


@pytest.mark.parametrize("block", [True, False])
def test_claude_code_s_line_for_accounts_does_not_tell_conversations_apart(block: bool) -> None:
    def asked(nonce: str) -> Any:
        line = f"x-anthropic-billing-header: cc_version=2; cch={nonce};"
        system: Any = (
            [{"type": "text", "text": line}, {"type": "text", "text": "You fix."}] if block else f"{line}\nYou fix."
        )
        body = {"model": "m", "max_tokens": 5, "system": system, "messages": [{"role": "user", "content": "Hi"}]}
        return anthropic.AnthropicDialect().read(body, ())

    assert asked("1") == asked("2")
    assert [message.text for message in asked("1").messages] == ["You fix.", "Hi"]


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
@pytest.mark.parametrize("tool", [{"type": "function"}, {"type": "function", "function": {}}, {"type": "computer"}])
def test_a_tool_that_can_not_be_declared_is_refused(dialect: Any, tool: dict[str, Any]) -> None:
    talk = [{"role": "user", "content": "Hi"}]
    body = {"model": "m", ("input" if dialect.name == "openai-responses" else "messages"): talk, "tools": [tool]}
    with pytest.raises(ProxyRequestError, match="tool"):
        dialect.read(body | ({"max_tokens": 5} if dialect.name == "anthropic" else {}), ())


@pytest.mark.parametrize(("dialect", "kind"), [(DIALECTS[1], "web_search_20250305"), (DIALECTS[2], "web_search")])
def test_a_tool_that_the_maker_s_server_would_run_is_left_out_and_noted(dialect: Any, kind: str) -> None:
    talk = [{"role": "user", "content": "Hi"}]
    body = {"model": "m", ("messages" if dialect.name == "anthropic" else "input"): talk, "max_tokens": 5}
    body = {key: value for key, value in body.items() if key != "max_tokens" or dialect.name == "anthropic"}
    ask = dialect.read({**body, "tools": [{"type": kind, "name": "web_search"}]}, ())
    assert ask.tools == () and ask.ignored == (f"tools.{kind}",)


PNG = "iVBORw0KGgo="
PICTURES = {
    "openai-chat": {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}},
    "anthropic": {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
    "openai-responses": {"type": "input_image", "image_url": f"data:image/png;base64,{PNG}"},
}


def with_result(dialect: str, parts: list[dict[str, Any]]) -> dict[str, Any]:
    """A request whose tool result holds these parts."""
    function = {"name": "look", "arguments": "{}"}
    if dialect == "openai-chat":
        turn = {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "k", "type": "function", "function": function}],
        }
        return {"model": "m", "messages": [turn, {"role": "tool", "tool_call_id": "k", "content": parts}]}
    if dialect == "anthropic":
        turn = {"role": "assistant", "content": [{"type": "tool_use", "id": "k", "name": "look", "input": {}}]}
        result = {"type": "tool_result", "tool_use_id": "k", "content": parts}
        return {"model": "m", "max_tokens": 5, "messages": [turn, {"role": "user", "content": [result]}]}
    call = {"type": "function_call", "call_id": "k", **function}
    return {"model": "m", "input": [call, {"type": "function_call_output", "call_id": "k", "output": parts}]}


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
def test_a_picture_is_a_placeholder_with_its_type_and_size(dialect: Any) -> None:
    text = {"type": "input_text" if dialect.name == "openai-responses" else "text", "text": "a screenshot:"}
    read = dialect.read(with_result(dialect.name, [text, PICTURES[dialect.name]]), ())
    assert read.messages[-1].text == "a screenshot:\n[image, image/png, 8 bytes, not shown]"


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ({"type": "image_url", "image_url": {"url": "https://h.example/a.png"}}, "[image, https://h.example/a.png, not shown]"),
        ({"type": "input_audio", "input_audio": {"data": PNG, "format": "wav"}}, "[audio, wav, 8 bytes, not shown]"),
        ({"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": PNG}},
         "[document, application/pdf, 8 bytes, not shown]"),
        ({"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "its words"}}, "its words"),
        ({"type": "input_file", "file_id": "file-1"}, "[file, file-1, not shown]"),
        ({"type": "image_url", "image_url": {}}, "[image, not shown]"),
        ({"type": "refusal", "refusal": "No."}, "No."),
        ({"type": "hologram"}, None),
    ],
)  # fmt: skip
def test_what_is_no_text_is_reported_by_kind_type_and_size(part: dict[str, Any], words: str | None) -> None:
    assert placeholder(part) == words


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
@pytest.mark.parametrize(
    ("word", "effort"),
    [("none", "low"), ("minimal", "low"), ("low", "low"), ("medium", "medium"), ("high", "high"), ("xhigh", "high"), ("max", "high")],
)  # fmt: skip
def test_every_name_of_an_effort_is_taken_and_one_beyond_ours_is_noted(dialect: Any, word: str, effort: str) -> None:
    talk = [{"role": "user", "content": "Hi"}]
    bodies = {
        "openai-chat": {"messages": talk, "reasoning_effort": word},
        "anthropic": {"messages": talk, "max_tokens": 5, "output_config": {"effort": word}},
        "openai-responses": {"input": talk, "reasoning": {"effort": word}},
    }
    ask = dialect.read({"model": "m", **bodies[dialect.name]}, ())
    assert ask.effort == effort
    assert any(word in note for note in ask.ignored) is (word != effort)
