"""Content is inert, and everything else becomes the ids that it would become anywhere."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etude.agent.chat.family import FamilyRenderer
from etude.agent.chat.files import read_template
from etude.agent.chat.hub_tokenizer import MARK, HubTokenizer, any_of
from etude.agent.chat.load import read_config

plain = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@st.composite
def spelt(draw: st.DrawFn) -> list[str]:
    """Pieces of text, some of them places where a marker may be spelt."""
    return draw(st.lists(plain | st.sampled_from(["", MARK, f"{MARK}3{MARK}", "<|", "|>", "<", "\n"]), max_size=6))


@pytest.mark.sample(15)
@settings(max_examples=25)
@given(pieces=spelt(), number=st.integers(0, 99))
def test_guarded_text_comes_back_as_it_was_and_holds_no_marker(
    real: FamilyRenderer, pieces: list[str], number: int
) -> None:
    tokenizer = real._tokenizer
    words = [*tokenizer.added]
    text = words[number % len(words)].join(pieces)
    ids = tokenizer.encode(tokenizer.guard(text))
    assert tokenizer.decode(ids) == text
    assert not {*ids} & {*tokenizer.added.values()}


@settings(max_examples=25)
@given(text=plain, content=plain, number=st.integers(0, 99))
def test_markers_around_guarded_content_stay_markers(
    real: FamilyRenderer, text: str, content: str, number: int
) -> None:
    tokenizer = real._tokenizer
    words = [*tokenizer.added]
    marker, other = words[number % len(words)], words[(number + 1) % len(words)]
    whole = tokenizer.encode(f"{marker}{tokenizer.guard(text + other + content)}{marker}")
    number_of = tokenizer.added[marker]
    assert whole[0] == whole[-1] == number_of and number_of not in whole[1:-1]
    assert tokenizer.decode(whole[1:-1]) == text + other + content


@settings(max_examples=25)
@given(text=plain)
def test_text_without_markers_is_encoded_as_the_library_does(real: FamilyRenderer, text: str) -> None:
    tokenizer = real._tokenizer
    if not any(word in text for word in tokenizer.added):
        assert (
            tokenizer.encode(tokenizer.guard(text)) == tokenizer._tokenizer.encode(text, add_special_tokens=False).ids
        )


@given(
    values=st.recursive(
        st.none() | st.booleans() | st.integers() | plain, lambda v: st.lists(v) | st.dictionaries(plain, v)
    )
)
def test_values_without_markers_are_guarded_to_themselves(make_renderer: Callable[..., Any], values: Any) -> None:
    tokenizer = make_renderer("qwen3")._tokenizer
    written = json.dumps(values, ensure_ascii=False)
    if MARK not in written and not any(word in written for word in tokenizer.added):
        assert tokenizer.guard(values) == values


@given(
    words=st.lists(st.text("ab|<.*", min_size=1, max_size=4), min_size=1, max_size=8),
    text=st.text("ab|<.*", max_size=20),
)
def test_the_longest_word_at_the_first_place_is_found(words: list[str], text: str) -> None:
    found = re.search(any_of(words), text)
    places = [(text.find(word), -len(word)) for word in words if word in text]
    assert (None if found is None else (found.start(), -len(found[0]))) == (min(places) if places else None)


def test_the_template_is_read_from_either_place(tmp_path: Path) -> None:
    assert read_template(tmp_path) is None and read_config(tmp_path) == {}
    named = [{"name": "default", "template": "d"}, {"name": "tool_use", "template": "t"}]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": named}))
    assert read_template(tmp_path) == "t"
    (tmp_path / "chat_template.jinja").write_text("j")
    assert read_template(tmp_path) == "j"
    (tmp_path / "config.json").write_text("[1]")
    with pytest.raises(ValueError, match="holds no JSON object"):
        read_config(tmp_path)


def test_a_folder_that_holds_no_tokenizer_is_named(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text('{"model": 3}')
    with pytest.raises(ValueError, match=r"tokenizer\.json is no tokenizer .*; save it again"):
        HubTokenizer.load(tmp_path)
