"""The nano chat format: lossless, append-only, and deaf to special-token text inside content."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models

from etude.agent.chat.byte_tokenizer import byte_tokenizer
from etude.agent.chat.nano import NanoRenderer
from etude.agent.chat.renderer import RenderError
from etude.agent.chat.special import SPECIAL_TOKENS, TOOL_PARAMETERS
from etude.core.trace.message import Message, Role, ToolCall

plain = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
forged = st.lists(st.sampled_from([*SPECIAL_TOKENS, "\n        ", "12", " x", "<0x41>"]), max_size=4).map("".join)
texts = st.one_of(plain, forged, st.tuples(plain, forged, plain).map("".join))


@st.composite
def turns(draw: st.DrawFn) -> Message:
    names = draw(st.lists(st.sampled_from(sorted(TOOL_PARAMETERS)), max_size=4))
    calls = tuple(ToolCall(f"c{i}", n, {p: draw(texts) for p in TOOL_PARAMETERS[n]}) for i, n in enumerate(names))
    return Message("assistant", draw(texts), calls=calls)


@st.composite
def conversations(draw: st.DrawFn) -> list[Message]:
    roles: list[Role] = draw(st.lists(st.sampled_from(["user", "tool", "assistant"]), max_size=6))
    return [draw(turns()) if role == "assistant" else Message(role, draw(texts)) for role in roles]


def test_special_tokens_are_the_first_32_ids_in_the_order_of_the_format() -> None:
    assert len(SPECIAL_TOKENS) == 32
    tokenizer = byte_tokenizer()
    assert [tokenizer.token_to_id(token) for token in SPECIAL_TOKENS] == list(range(32))
    assert SPECIAL_TOKENS[2] == "<|end|>" and SPECIAL_TOKENS[9] == "<|grep|>" and SPECIAL_TOKENS[14] == "<|done|>"


@given(message=turns())
def test_parse_inverts_render(renderer: NanoRenderer, message: Message) -> None:
    ids = renderer.render_message(message)
    prompt = renderer.generation_prompt()
    assert ids[: len(prompt)] == prompt
    assert renderer.parse(ids[len(prompt) :]) == message


@given(messages=conversations())
def test_pieces_appended_equal_the_whole_tokenized_at_once(renderer: NanoRenderer, messages: list[Message]) -> None:
    """Text without special-token spelling: the tokenizer itself, special tokens on, gives the very same ids."""
    if any("<|" in part for m in messages for part in (m.text, *(v for c in m.calls for v in c.arguments.values()))):
        return
    pieces = [renderer.render_message(m) for m in messages]
    whole = renderer.render_prefix(messages, ())
    assert whole == [token for piece in pieces for token in piece]
    wire = Tokenizer.from_str(renderer._tokenizer.to_str())
    wire.encode_special_tokens = False
    text = wire.decode(whole, skip_special_tokens=False)
    assert wire.encode(text, add_special_tokens=False).ids == whole


@given(text=texts, role=st.sampled_from(["user", "tool", "system"]))
def test_content_never_becomes_a_special_token(renderer: NanoRenderer, text: str, role: Role) -> None:
    ids = renderer.render_message(Message(role, text))
    if role == "system" and not text:
        assert ids == []
        return
    assert len([token for token in ids if token < 32]) == 2  # the role and the end
    assert ids[0] < 32 and ids[-1] == renderer.stop_ids[0]


@given(ids=st.lists(st.integers(-2, 500), max_size=40))
@settings(max_examples=300)
def test_parse_never_raises_and_what_it_accepts_renders_to_the_same_structure(
    renderer: NanoRenderer, ids: list[int]
) -> None:
    message = renderer.parse(ids)
    if message.problem is None:
        again = renderer.parse(renderer.render_message(message)[1:])
        assert again == message
    else:
        assert message.calls == ()


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["<|edit|>", "<|arg|>", "<|end|>"], "edit takes 3 arguments, got 2"),
        (["<|grep|>", "<|arg|>", "<|end|>"], "grep takes 1 arguments, got 2"),
        (["<|test|>", "<|arg|>", "<|end|>"], "test takes 0 arguments, got 2"),
        (["<|reserved_18|>", "<|end|>"], "stray <|reserved_18|>"),
        (["<|user|>", "<|end|>"], "stray <|user|>"),
        (["<|end|>", "<|end|>"], "stray <|end|>"),
        (["<|arg|>", "<|end|>"], "stray <|arg|>"),
        (["<|test|>"], "the turn was cut off before its end"),
    ],
)
def test_malformed_turns_name_their_problem(renderer: NanoRenderer, words: list[str], problem: str) -> None:
    message = renderer.parse([SPECIAL_TOKENS.index(word) for word in words])
    assert message.problem == problem
    assert message.calls == ()


def test_text_of_a_call_without_arguments_is_malformed(renderer: NanoRenderer) -> None:
    ids = renderer.render_message(Message("assistant", "x"))[1:-1]
    test, end = SPECIAL_TOKENS.index("<|test|>"), renderer.stop_ids[0]
    assert renderer.parse([test, *ids, end]).problem == "test takes 0 arguments, got 1"


@given(messages=conversations())
def test_loss_mask_covers_exactly_the_sampled_turns(renderer: NanoRenderer, messages: list[Message]) -> None:
    ids, expected = [], []
    for message in messages:
        piece = renderer.render_message(message)
        ids += piece
        expected += [False] + [message.role == "assistant"] * (len(piece) - 1)
    assert renderer.loss_mask(ids) == expected


@given(message=turns())
def test_token_kinds_add_up_to_the_turn(renderer: NanoRenderer, message: Message) -> None:
    ids = renderer.render_message(message)[1:]
    kinds = renderer.count(ids)
    assert kinds.thinking + kinds.calling + kinds.message == len(ids)
    assert (kinds.calling > 0) == bool(message.calls)


def test_done_message_counts_as_the_final_message(renderer: NanoRenderer) -> None:
    call = ToolCall("c0", "done", {"message": "12"})
    kinds = renderer.count(renderer.render_message(Message("assistant", "1", calls=(call,)))[1:])
    assert (kinds.thinking, kinds.calling, kinds.message) == (1, 1, 3)


def test_a_cut_off_turn_is_closed_and_a_whole_one_left_alone(renderer: NanoRenderer) -> None:
    end = renderer.stop_ids[0]
    assert renderer.close_turn([40, end]) == []
    assert renderer.close_turn([40]) == renderer.close_turn([]) == [end]


def test_summary_messages_carry_their_mark(renderer: NanoRenderer) -> None:
    user, mark, end = (SPECIAL_TOKENS.index(t) for t in ("<|user|>", "<|summary|>", "<|end|>"))
    assert renderer.render_message(Message("user", "", summary=True)) == [user, mark, end]


def test_tools_without_a_token_are_refused_with_the_remedy(renderer: NanoRenderer) -> None:
    with pytest.raises(RenderError, match=r"no token for the tool 'shell'.*nano preset"):
        renderer.render_message(Message("assistant", calls=(ToolCall("c0", "shell", {"command": "ls"}),)))
    shell = {"type": "function", "function": {"name": "shell", "parameters": {"properties": {"command": {}}}}}
    with pytest.raises(RenderError, match="no token for the tool 'shell'"):
        renderer.render_prefix([], [shell])


@pytest.mark.parametrize(
    "message",
    [
        Message("assistant", thinking="hm"),
        Message("user", calls=(ToolCall("c0", "test", {}),)),
        Message("assistant", calls=(ToolCall("c0", "grep", {"pattern": 3}),)),
        Message("assistant", calls=(ToolCall("c0", "grep", {"path": "x"}),)),
    ],
)
def test_what_the_format_cannot_hold_is_refused(renderer: NanoRenderer, message: Message) -> None:
    with pytest.raises(RenderError):
        renderer.render_message(message)


def test_a_lossy_tokenizer_is_refused_at_the_door() -> None:
    words = {token: i for i, token in enumerate((*SPECIAL_TOKENS, "a"))}
    lossy = Tokenizer(models.BPE(vocab=words, merges=[]))
    lossy.add_special_tokens(list(SPECIAL_TOKENS))
    with pytest.raises(ValueError, match="loses text"):
        NanoRenderer(lossy)
    with pytest.raises(ValueError, match=r"lacks the special token"):
        NanoRenderer(Tokenizer(models.BPE()))


def test_vocabulary_names_every_id(renderer: NanoRenderer) -> None:
    words = renderer.vocabulary()
    assert words[:32] == list(SPECIAL_TOKENS)
    assert "a" in words and "\n" in words and all(words)


def test_fingerprint_follows_the_tokenizer(renderer: NanoRenderer) -> None:
    changed = byte_tokenizer()
    changed.add_tokens(["extra"])
    assert NanoRenderer(changed).fingerprint != renderer.fingerprint
    assert NanoRenderer(byte_tokenizer()).fingerprint == NanoRenderer(byte_tokenizer()).fingerprint
