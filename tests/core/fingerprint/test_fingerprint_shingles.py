"""Token hashes without a loop must be those of the tokens: checked against a regular expression."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from etude.core.fingerprint.shingles import BLOCK_BYTES, shingle, token_hashes

TOKEN = re.compile(rb"[A-Za-z0-9_\x80-\xff]+|[!-/:-@\[-^`{-~]")
CODE = st.text(alphabet="ab1_ \n\t.(=é漢\x00", max_size=60)


def tokens(text: str) -> list[bytes]:
    return TOKEN.findall(text.encode("utf-8", "surrogatepass"))


@settings(max_examples=150, deadline=None)
@given(st.lists(CODE, min_size=1, max_size=4))
@example(["", "a", "\ud800 lone", "_" * 70])
def test_two_tokens_have_one_hash_exactly_if_they_are_the_same(texts: list[str]) -> None:
    seen: dict[bytes, int] = {}
    for text in texts:
        hashes = token_hashes(text).tolist()
        words = tokens(text)
        assert len(hashes) == len(words)
        for word, value in zip(words, hashes, strict=True):
            assert seen.setdefault(word, value) == value
    assert len(set(seen.values())) == len(seen)


def test_the_border_of_a_block_changes_no_token() -> None:
    line = "value_1 = other(2)\n"
    text = line * (3 * BLOCK_BYTES // len(line))
    one = token_hashes(line)
    for shift in ("", "x ", "xyz ", "long_name "):
        hashes = token_hashes(shift + text)[len(tokens(shift)) :]
        assert np.array_equal(hashes.reshape(-1, len(one)), np.broadcast_to(one, (len(hashes) // len(one), len(one))))


def test_a_word_longer_than_a_block_is_cut_and_the_tokens_after_it_are_found() -> None:
    hashes = token_hashes("x" * (2 * BLOCK_BYTES + 5) + " after")
    assert len(hashes) == 4
    assert hashes[-1] == token_hashes("after")[0]


def test_reformatting_changes_no_hash() -> None:
    assert np.array_equal(token_hashes("f(a,b)\n\treturn c"), token_hashes("f( a ,\r\n  b )\n    return c\n"))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 5), max_size=40), st.integers(1, 6))
def test_shingles_are_the_n_grams_in_order(values: list[int], n: int) -> None:
    hashes = np.array(values, dtype=np.uint64)
    grams = [tuple(values[i : i + n]) for i in range(len(values) - n + 1)]
    found = shingle(hashes, n).tolist()
    assert len(found) == len(grams)
    assert len(set(zip(grams, found, strict=True))) == len(set(grams)) == len(set(found))


def test_the_bits_of_shingles_are_even() -> None:
    text = " ".join(f"name{i}" for i in range(20_000))
    found = shingle(token_hashes(text), 5)
    shares = [float(((found >> np.uint64(bit)) & np.uint64(1)).mean()) for bit in range(64)]
    assert max(abs(share - 0.5) for share in shares) < 0.02  # 0.0035 is one standard deviation


def test_an_impossible_n_is_refused() -> None:
    with pytest.raises(ValueError, match="shingle of 0 tokens"):
        shingle(token_hashes("a b"), 0)
