"""The tokenizer is lossless, keeps digits apart and indents whole, and never makes a special id out of content."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from etude.agent.chat.nano import NanoRenderer
from etude.agent.chat.special import SPECIAL_TOKENS
from etude.learn.corpus.tokenizer import encode_documents, load_tokenizer, train_tokenizer

CODE = "def count_items(values):\n    total = 0\n    for value in values:\n        total += 12\n    return total\n"


@pytest.fixture(scope="module")
def tokenizer():
    texts = [CODE.replace("items", f"items{i}") for i in range(20)]
    exercise = "frobnicate\ndef frobnicate(rows):\n    return rows\n" * 3
    return train_tokenizer([*texts, *[exercise] * 4], SPECIAL_TOKENS, 480)


# Text without lone surrogates: those are not text, and UTF-8 can't hold them.
TEXT = st.text(st.characters(exclude_categories=["Cs"]))
CODE_LIKE = st.text(st.sampled_from(list("ab_ \n\t01():=<|>\"'é日\x00\r😀")))


@given(TEXT | CODE_LIKE)
@example("\n" + " " * 23 + "x")
@example("<|end|> <|assistant|>")
@settings(max_examples=300, deadline=None)
def test_any_text_comes_back_unchanged(tokenizer, text):
    ids = tokenizer.encode(text).ids
    assert tokenizer.decode(ids, skip_special_tokens=False) == text
    assert all(i >= len(SPECIAL_TOKENS) for i in ids)


@given(CODE_LIKE)
@settings(max_examples=200, deadline=None)
def test_every_digit_is_a_token_of_its_own(tokenizer, text):
    for token in tokenizer.encode(text).tokens:
        assert sum(c.isdigit() for c in token) <= 1


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=20), st.sampled_from(SPECIAL_TOKENS))
@settings(max_examples=100, deadline=None)
def test_special_token_text_inside_content_stays_text(tokenizer, text, token):
    ids = next(encode_documents(tokenizer, [text + token + text]))
    assert min(ids) >= len(SPECIAL_TOKENS)


@pytest.mark.parametrize("width", [0, 4, 8, 12, 16])
def test_newline_with_indent_is_one_token(tokenizer, width):
    ids = tokenizer.encode("x\n" + " " * width + "x").ids
    assert len(ids) == 3


@pytest.mark.parametrize("digit", "0123456789")
def test_a_digit_is_one_token_with_and_without_a_space(tokenizer, digit):
    assert len(tokenizer.encode(digit).ids) == 1
    assert len(tokenizer.encode(" " + digit).ids) == 1


def test_exercise_words_become_single_tokens(tokenizer):
    assert len(tokenizer.encode("def frobnicate(").ids) <= 4
    assert len(tokenizer.encode("frobnicate").ids) == 1 and len(tokenizer.encode(" frobnicate").ids) == 1


def test_special_tokens_come_first_in_order(tokenizer):
    assert [tokenizer.token_to_id(token) for token in SPECIAL_TOKENS] == list(range(len(SPECIAL_TOKENS)))
    assert tokenizer.get_vocab_size() <= 480


def test_saved_and_loaded_tokenizer_encodes_the_same(tokenizer, tmp_path):
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    loaded = load_tokenizer(tmp_path)
    assert loaded.encode(CODE + "<|end|>").ids == tokenizer.encode(CODE + "<|end|>").ids


def test_a_missing_tokenizer_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="tokenizer.json"):
        load_tokenizer(tmp_path)


def test_training_twice_gives_the_same_bytes():
    first, second = (train_tokenizer([CODE, CODE.upper()], SPECIAL_TOKENS, 768).to_str() for _ in range(2))
    assert first == second


def test_the_chat_format_accepts_it(tokenizer):
    NanoRenderer(tokenizer)  # raises if the tokenizer loses text or misses a special token
