"""Fill-in-the-middle loses nothing, is the same every time, and cuts as often and where it was set to."""

from __future__ import annotations

import ast
import hashlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etude.learn.corpus.shape.fim import LONGEST_CHARS, SHORTEST_CHARS, FimTokens, Piece, Special, fim, unfim

TOKENS = FimTokens(Special("<|prefix|>"), Special(7), Special("<|middle|>"))
PYTHON = '''"""Düsseldorf, 漢字."""
import os

def größe(werte, *, faktor=1):
    """Sums."""
    if not werte:
        raise ValueError("leer: ä")
    return sum(wert * faktor for wert in werte)


class Tally:
    def add(self, item):
        self.items.append({"ü": item, "count": len(self.items)})
else_ = [größe([1, 2], faktor=3), "漢字" * 4]
'''


def digest(number: int) -> str:
    return hashlib.sha256(str(number).encode()).hexdigest()


def cut(text: str, number: int, **options) -> list[Piece]:
    return fim(text, digest(number), TOKENS, **{"seed": 1, "rate": 1.0, **options})


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=3 * SHORTEST_CHARS) | st.just(PYTHON), st.integers(0, 1000), st.sampled_from(["python", ""]))
def test_nothing_is_lost(text: str, number: int, language: str) -> None:
    assert unfim(cut(text, number, language=language)) == text


def test_the_choice_depends_on_seed_and_digest_alone() -> None:
    assert cut(PYTHON, 3) == cut(PYTHON, 3)
    assert len({str(cut(PYTHON, number)) for number in range(50)}) > 45
    assert cut(PYTHON, 3) != cut(PYTHON, 3, seed=2)


def test_both_orders_come_alike_often_in_the_published_token_order() -> None:
    cuts = [cut(PYTHON, number) for number in range(2000)]
    kinds = [tuple(type(piece) for piece in pieces) for pieces in cuts]
    psm, spm = (Special, str, Special, str, Special, str), (Special, Special, str, Special, str, str)
    assert set(kinds) == {psm, spm}
    assert 0.45 < kinds.count(psm) / len(kinds) < 0.55
    for pieces in cuts:
        assert [piece for piece in pieces if isinstance(piece, Special)] == [
            TOKENS.prefix,
            TOKENS.suffix,
            TOKENS.middle,
        ]


@pytest.mark.parametrize("rate", [0.0, 0.5, 1.0])
def test_as_many_are_cut_as_the_rate_says(rate: float) -> None:
    share = sum(len(cut(PYTHON, number, rate=rate)) > 1 for number in range(2000)) / 2000
    assert share == rate if rate in (0, 1) else abs(share - rate) < 0.05


@pytest.mark.parametrize("length", [SHORTEST_CHARS - 1, LONGEST_CHARS + 1])
def test_long_documents_and_tiny_ones_stay_whole(length: int) -> None:
    assert all(cut("x" * length, number) == ["x" * length] for number in range(20))


def middle(pieces: list[Piece]) -> str:
    assert isinstance(pieces[-1], str)
    return pieces[-1]


def test_half_of_the_middles_of_python_are_whole_nodes() -> None:
    nodes = {
        ast.get_source_segment(PYTHON, node)
        for node in ast.walk(ast.parse(PYTHON))
        if isinstance(node, ast.stmt | ast.expr | ast.arg | ast.keyword | ast.alias)
    }
    share = sum(middle(cut(PYTHON, number, language="python")) in nodes for number in range(1000)) / 1000
    assert 0.35 < share < 0.55  # a point between statements has no node
    assert sum(middle(cut(PYTHON, number)) in nodes for number in range(300)) / 300 < 0.05


def test_text_that_looks_like_a_special_token_stays_text() -> None:
    text = "<|prefix|>" * 20
    for number in range(20):
        assert "".join(piece for piece in cut(text, number) if isinstance(piece, str)).count("<|") <= 20
        assert unfim(cut(text, number)) == text


def test_broken_python_is_cut_at_characters() -> None:
    text = "def broken(:\n" * 20
    assert all(unfim(cut(text, number, language="python")) == text for number in range(50))


def test_an_impossible_rate_is_refused() -> None:
    with pytest.raises(ValueError, match=r"rate 1\.5"):
        cut(PYTHON, 1, rate=1.5)
