"""An extended tokenizer: old ids unchanged, lossless, special tokens out of no text, and text in fewer tokens."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from etude.agent.chat.nano import NanoRenderer
from etude.agent.chat.special import CHAT_TOKENS, SPECIAL_TOKENS
from etude.learn.corpus.extension import compression, extend_tokenizer, spell_new_ids
from etude.learn.corpus.merges import CannotExtend, learn_merges
from etude.learn.corpus.tokenizer import train_tokenizer
from etude.learn.corpus.tokenizer_check import TokenizerMismatch, check, check_belongs

GENERAL = "the quick brown fox jumps over the lazy dog; def main(): return print('hello world')\n" * 3
DOMAIN = "def frobnicate_widget(widget):\n    return widget.frobnicate(gizmo=widget.gizmo)\n" * 5
TEXT = st.text(st.characters(exclude_categories=["Cs"]))
WORDS = st.lists(st.sampled_from(["frobnicate", " widget", "gizmo", "<|end|>", "\n    ", "x", "é"])).map("".join)


@pytest.fixture(scope="module")
def foreign() -> Tokenizer:
    """As open models have theirs: special tokens behind the vocabulary and known only to the list of added ones."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)  # type: ignore[assignment]
    tokenizer.decoder = decoders.ByteLevel()  # type: ignore[assignment]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(
        [GENERAL], trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet, show_progress=False)
    )
    tokenizer.add_special_tokens([AddedToken("<|im_start|>", special=True), AddedToken("<|im_end|>", special=True)])
    return tokenizer


@pytest.fixture(scope="module")
def longer(foreign: Tokenizer) -> Tokenizer:
    return extend_tokenizer(foreign, CHAT_TOKENS, learn_merges(foreign, [DOMAIN], 12))


def test_old_ids_mean_what_they_meant_also_after_writing_and_reading(foreign: Tokenizer, longer: Tokenizer) -> None:
    again = Tokenizer.from_str(longer.to_str())
    for tokenizer in (longer, again):
        assert {token: tokenizer.token_to_id(token) for token in foreign.get_vocab()} == foreign.get_vocab()
        assert sorted(tokenizer.get_vocab().values()) == list(range(tokenizer.get_vocab_size()))
        assert tokenizer.get_vocab_size() == foreign.get_vocab_size() + len(CHAT_TOKENS) + 12


@given(TEXT | WORDS)
@settings(max_examples=200, deadline=None)
def test_any_text_comes_back_and_none_makes_a_special_token(longer: Tokenizer, text: str) -> None:
    ids = longer.encode(text, add_special_tokens=False).ids
    assert longer.decode(ids, skip_special_tokens=False) == text
    special = {n for n, token in longer.get_added_tokens_decoder().items() if token.special}
    assert special.isdisjoint(ids) and len(special) == 2 + len(CHAT_TOKENS)


@given(TEXT | WORDS)
@settings(max_examples=200, deadline=None)
def test_new_tokens_only_join_what_the_old_tokenizer_gave(foreign: Tokenizer, longer: Tokenizer, text: str) -> None:
    foreign.encode_special_tokens = True
    spelling = spell_new_ids(foreign, longer)
    opened = [old for n in longer.encode(text, add_special_tokens=False).ids for old in spelling.get(n, [n])]
    assert opened == foreign.encode(text, add_special_tokens=False).ids


def test_domain_text_takes_fewer_tokens_and_every_new_token_is_reached(foreign: Tokenizer, longer: Tokenizer) -> None:
    assert compression(longer, [DOMAIN]) > 1.5 * compression(foreign, [DOMAIN])
    assert check(longer).unreachable == check(foreign).unreachable
    assert check(longer, [DOMAIN], older=foreign).sound


def test_the_chat_format_accepts_what_was_extended_with_its_tokens(foreign: Tokenizer, longer: Tokenizer) -> None:
    with pytest.raises(ValueError, match="etude tokenizer extend --chat"):
        NanoRenderer(foreign)
    NanoRenderer(longer)


def test_more_merges_are_asked_for_than_the_text_has(foreign: Tokenizer) -> None:
    found = learn_merges(foreign, ["abab abab"], 1_000)
    assert 0 < len(found) < 10 and len(set(found)) == len(found)
    assert learn_merges(foreign, [], 5) == []


def test_the_learnt_merges_are_those_that_plain_training_would_add() -> None:
    """Where there is nothing to start from, going on is starting."""
    text = "low lower lowest newer newest wider widest " * 3
    bare = train_tokenizer([], SPECIAL_TOKENS, 400)
    found = learn_merges(bare, [text], 3)
    assert found[0] in (("w", "e"), ("e", "r"), ("Ġ", "w"), ("l", "o"), ("o", "w"), ("e", "s"), ("s", "t"))
    learner = Tokenizer(models.BPE())
    learner.pre_tokenizer = bare.pre_tokenizer
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    learner.train_from_iterator(
        [text], trainers.BpeTrainer(vocab_size=259, initial_alphabet=alphabet, show_progress=False)
    )
    plain = [tuple(pair) for pair in json.loads(learner.to_str())["model"]["merges"]]
    assert compression(extend_tokenizer(bare, (), found), [text]) == pytest.approx(
        compression(extend_tokenizer(bare, (), plain), [text]), rel=0.05
    )


def test_tokenizers_of_another_kind_are_refused_with_the_reason() -> None:
    words = Tokenizer(models.WordLevel({"a": 0}, unk_token="a"))
    with pytest.raises(CannotExtend, match="this is WordLevel without a pre-tokenizer"):
        learn_merges(words, ["a a"], 1)
    with pytest.raises(CannotExtend, match="of kind WordLevel"):
        extend_tokenizer(words, ["<|x|>"])


def test_a_tokenizer_that_loses_text_or_whose_ids_moved_is_not_sound(foreign: Tokenizer) -> None:
    composing = Tokenizer.from_str(foreign.to_str())
    composing.normalizer = normalizers.NFC()  # type: ignore[assignment]
    found = check(composing)
    assert not found.sound and "e\u0301 \ufb01 \u212b" in found.lost
    shifted = extend_tokenizer(train_tokenizer([GENERAL], ["<|a|>"], 330))
    assert check(shifted, older=train_tokenizer([GENERAL], ["<|b|>", "<|a|>"], 330)).moved


def test_a_special_token_that_text_can_make_is_found(foreign: Tokenizer) -> None:
    described = json.loads(foreign.to_str())
    described["added_tokens"].append(described["added_tokens"][0] | {"id": foreign.token_to_id("a"), "content": "a"})
    assert check(Tokenizer.from_str(json.dumps(described))).forged == ["a"]


def test_a_tokenizer_of_another_checkpoint_is_refused(foreign: Tokenizer, tmp_path) -> None:
    config = {"vocab_size": foreign.get_vocab_size(), "eos_token_id": foreign.token_to_id("<|im_end|>")}
    (tmp_path / "config.json").write_text(json.dumps(config))
    check_belongs(tmp_path, foreign)
    with pytest.raises(TokenizerMismatch, match=r"ids go up to 302, the model has 302 rows"):
        check_belongs(tmp_path, extend_tokenizer(foreign, ["<|more|>"]))
    (tmp_path / "config.json").write_text(json.dumps(config | {"eos_token_id": [5]}))
    with pytest.raises(TokenizerMismatch, match="names 5 as eos_token_id, which is .* and no special token"):
        check_belongs(tmp_path, foreign)


def bytes_of(tokenizer: Tokenizer, ids: list[int]) -> str:
    """The byte-level letters of these tokens: one for each byte."""
    return "".join(str(tokenizer.id_to_token(number)) for number in ids)


@given(
    st.lists(
        st.sampled_from(["世界", "世间", " 与世", "— ", "“x” ", "дом ", "дым ", "😀", "é", "def ", "\t"]),
        min_size=1,
        max_size=12,
    )
)
@settings(max_examples=60, deadline=None)
def test_a_new_row_starts_from_the_old_tokens_of_its_very_bytes_also_within_a_character(words: list[str]) -> None:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    old = Tokenizer(models.BPE(vocab={letter: n for n, letter in enumerate(alphabet)}, merges=[]))
    old.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)  # type: ignore[assignment]
    old.decoder = decoders.ByteLevel()  # type: ignore[assignment]
    new = extend_tokenizer(old, ("<|end|>",), learn_merges(old, ["".join(words) * 4], 20))
    found = spell_new_ids(old, new)
    assert found.keys() == {n for n in new.get_vocab().values() if n >= len(alphabet)}
    for number, ids in found.items():
        assert bytes_of(old, ids) == new.id_to_token(number)


def test_a_new_row_of_a_tokenizer_that_falls_back_to_bytes_starts_from_those_bytes() -> None:
    pieces = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", "a", "b", "ab"]
    old = Tokenizer(
        models.BPE(
            vocab={piece: n for n, piece in enumerate(pieces)},
            merges=[("a", "b")],
            byte_fallback=True,
            unk_token="<unk>",
        )
    )
    new = extend_tokenizer(old, (), [("<0xE4>", "<0xB8>"), ("<0xE4><0xB8>", "<0x96>"), ("▁", "ab")])
    by_token = {
        new.id_to_token(number): [old.id_to_token(i) for i in ids] for number, ids in spell_new_ids(old, new).items()
    }
    assert by_token == {
        "<0xE4><0xB8>": ["<0xE4>", "<0xB8>"],
        "<0xE4><0xB8><0x96>": ["<0xE4>", "<0xB8>", "<0x96>"],
        "▁ab": ["▁", "ab"],
    }
