"""No message holds half a surrogate pair, whatever it was made from."""

import json
import os

from hypothesis import given
from hypothesis import strategies as st

from etude.core.trace.message import Message, ToolCall
from etude.core.trace.unicode import is_whole, visible, whole

# Any code points, surrogates among them: what JSON strings and file names can hold.
ANY_TEXT = st.text(st.characters(codec=None, categories=None) | st.characters(categories=["Cs"]), max_size=8)


@given(ANY_TEXT)
def test_a_whole_text_has_a_utf8_encoding_and_keeps_every_other_character(text):
    made = whole(text)
    assert made.encode() and is_whole(made) or text == ""
    joined = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    assert len(made) == len(joined) and all(a == b for a, b in zip(made, joined, strict=True) if is_whole(b))


def test_a_pair_in_two_halves_is_its_character_and_a_lone_half_is_replaced():
    assert whole("\ud83d\ude00 \ud83d") == "😀 �"
    assert whole({"a\udce9": ["\udc80", 1, None]}) == {"a�": ["�", 1, None]}


@given(ANY_TEXT, ANY_TEXT)
def test_no_message_holds_a_lone_surrogate(text, other):
    call = ToolCall(other, text, {other: [text, {"deep": other}]})
    made = Message("assistant", text, thinking=other, calls=(call,), call_id=text, problem=other)
    json.dumps(made.to_json(), ensure_ascii=False).encode()  # raises on a lone surrogate


def test_a_session_that_recorded_a_lone_surrogate_is_read_without_it():
    row = {"role": "tool", "text": os.fsdecode(b"caf\xe9.py"), "call_id": "c1"}
    assert Message.from_json(row).text == "caf�.py"


def test_what_steers_or_reorders_is_spelled_out_and_other_text_stays() -> None:
    assert visible("a\x1b[1m\u202eb\x7f") == "a\\x1b[1m\\u202eb\\x7f"
    for text in ("tab\tand\nline", "שלום عربي", "👩\u200d👩\u200d👧 日本", ""):
        assert visible(text) == text
    assert visible("a\r\nb\udce9") == "a\nb\ufffd"
