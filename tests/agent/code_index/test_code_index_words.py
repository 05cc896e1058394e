"""Identifiers and prose meet in the same terms."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.agent.code_index.words import TERM_BYTES, expand, stem, terms

parts = st.lists(st.text("abcdefghijklmnopqrstuvwxyz", min_size=2, max_size=8), min_size=1, max_size=4)


@given(parts)
def test_a_name_has_the_same_terms_however_it_joins_its_parts(words: list[str]) -> None:
    snake, screaming = "_".join(words), "_".join(words).upper()
    pascal = "".join(word.capitalize() for word in words)
    camel = pascal[0].lower() + pascal[1:]
    assert len({expand(name) for name in (snake, screaming, pascal, camel)}) == 1


@given(st.text())
def test_any_text_has_terms_that_fit_the_store_and_name_themselves(text: str) -> None:
    for term in terms(text):
        assert 0 < len(term.encode()) <= TERM_BYTES
        assert "\0" not in term


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("HTTPServer", ("http", "server", "httpserver")),
        ("parse_configs", ("pars", "config", "parseconfigs")),
        ("x", ()),
        ("utf8", ("utf", "utf8")),
        ("Größe_x", ("größ", "größex")),
        ("a" * 100, ()),
    ],
)
def test_identifiers_are_taken_apart(word: str, expected: tuple[str, ...]) -> None:
    assert expand(word) == expected


@pytest.mark.parametrize(
    "family",
    [
        {"parse", "parses", "parsing", "parsed"},
        {"run", "running", "runs"},
        {"policy", "policies"},
        {"match", "matches", "matching", "matched"},
        {"call", "calls", "called", "calling"},
        {"index", "indexes", "indexed"},
    ],
)
def test_forms_of_a_word_are_one_term(family: set[str]) -> None:
    assert len({stem(word) for word in family}) == 1


def test_words_that_only_look_alike_stay_apart() -> None:
    assert len({stem(word) for word in ("class", "bus", "valid", "validate", "status", "bring")}) == 6
