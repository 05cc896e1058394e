"""Every document that Etude writes is strict JSON, says where a number was not finite, and reads back as it was."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.core.events.finite import NOT_FINITE, dumps, loads

KEYS = st.text(max_size=5).filter(lambda key: key != NOT_FINITE)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=20,
)


def refuse(word: str) -> None:
    raise AssertionError(f"{word} is no JSON")


def same(a: object, b: object) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return a == b or (math.isnan(a) and math.isnan(b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and a == b


@given(st.dictionaries(KEYS, VALUES, max_size=5))
def test_any_document_is_strict_json_and_reads_back_as_it_was(document: dict) -> None:
    text = dumps(document)
    json.loads(text, parse_constant=refuse)
    assert same(loads(text), document)


def test_null_stands_in_its_place_and_the_document_says_where_and_what_it_was() -> None:
    document = {"mismatch": {"k3": math.nan, "a/b": -math.inf}, "curve": [1.0, math.inf], "none": None}
    assert json.loads(dumps(document)) == {
        "mismatch": {"k3": None, "a/b": None},
        "curve": [1.0, None],
        "none": None,
        "not_finite": {"/mismatch/k3": "nan", "/mismatch/a~1b": "-inf", "/curve/1": "inf"},
    }
    assert "not_finite" not in json.loads(dumps({"a": 1.0}))


@pytest.mark.parametrize(
    "places", [{"/x/9": "nan"}, {"/y": "nan"}, {"": "nan"}, {"/x/0": "word"}, {"/x/0": 3}, {"/z/a": "inf"}]
)
def test_a_place_that_is_not_there_is_passed_over(places: dict) -> None:
    text = json.dumps({"x": [None], "z": 5, NOT_FINITE: places})
    assert loads(text) == {"x": [None], "z": 5}
