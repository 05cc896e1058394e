"""YAML of somebody else costs neither minutes nor gigabytes: repeated aliases, depth, long numbers and tags are refused in a moment."""

from __future__ import annotations

import time

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from etude.core.bounded_yaml import MOST_CHARS, YamlRefused, loads

LAUGHS = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12))
MERGES = "a0: &a0 {k: 1}\n" + "".join(
    f"a{n}: &a{n}\n  <<: [{', '.join([f'*a{n - 1}'] * 9)}]\n  k{n}: 1\n" for n in range(1, 12)
)
HOSTILE = {
    "aliases": LAUGHS,
    "merges": MERGES,
    "an alias of itself": "a: &a [*a]\n",
    "lists": "[" * 100_000,
    "tables": "{a: " * 50_000,
    "blocks": "- " * 50_000,
    "keys": "? " * 50_000,
    "digits": "a: " + "9" * 100_000,
    "base 60": "a: " + ":".join(["1"] * 50_000),
    "long": "# " + "x" * MOST_CHARS,
    "a tag": "a: !!python/object/apply:os.system [true]",
    "two documents": "a: 1\n---\nb: 2\n",
    "a date that is none": "a: 2024-99-99",
    "a list as a key": "? [a]\n: 1\n",
    "a zero byte": "a: \0",
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_file_is_refused_in_a_moment(kind: str) -> None:
    start = time.process_time()
    with pytest.raises(YamlRefused) as refused:
        loads(HOSTILE[kind])
    assert str(refused.value) and time.process_time() - start < 5


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text("abc: -#'\"\n", max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc-", max_size=3), inner, max_size=3),
    max_leaves=10,
)


@given(PLAIN)
def test_any_plain_document_is_what_it_was(value: object) -> None:
    assert loads(yaml.safe_dump(value)) == value


def test_aliases_within_the_bounds_are_followed() -> None:
    assert loads("a: &x [1, 2]\nb: *x\n") == {"a": [1, 2], "b": [1, 2]}
