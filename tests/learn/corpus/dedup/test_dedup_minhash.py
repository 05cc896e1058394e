"""Signatures must estimate the exact Jaccard without bias, also of short texts, and a licence header must not count."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etude.core.fingerprint.shingles import Hashes, mix
from etude.learn.corpus.dedup.minhash import (
    PLACES,
    SHORTEST_SHINGLES,
    body,
    jaccard,
    shingles_of,
    signature,
    similarity,
)

APACHE = "# Copyright 2024 Some Body\n# Licensed under the Apache License, Version 2.0\n"
CODE = "def tally(items):\n    return sum(item.count for item in items)\n"


def overlapping(rng: np.random.Generator, size: int, common: int) -> tuple[Hashes, Hashes]:
    """Two sets of `size` shingles of which `common` are the same."""
    pool = mix(rng.integers(0, 1 << 63, 2 * size - common, dtype=np.int64).astype(np.uint64))
    return np.sort(pool[:size]), np.sort(pool[size - common :])


@pytest.mark.parametrize("size", [SHORTEST_SHINGLES, 100, 1000])
@pytest.mark.parametrize("share", [0.3, 0.7, 0.95])
def test_the_estimate_is_unbiased_for_texts_of_any_length(size: int, share: float) -> None:
    rng = np.random.default_rng(size)
    errors = []
    for _ in range(300):
        one, other = overlapping(rng, size, int(share * size))
        a, b = signature(one), signature(other)
        assert a is not None and b is not None
        errors.append(float(similarity(a, b)) - jaccard(one, other))
    assert abs(np.mean(errors)) < 4 * np.std(errors) / np.sqrt(len(errors))
    assert np.std(errors) < 0.06


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 2**64 - 1), min_size=SHORTEST_SHINGLES, max_size=300), st.randoms(use_true_random=False))
def test_order_and_repeats_of_shingles_do_not_count(values: list[int], rng) -> None:
    again = values + rng.choices(values, k=20)
    rng.shuffle(again)
    one = signature(np.sort(np.array(values, dtype=np.uint64)))
    other = signature(np.sort(np.array(again, dtype=np.uint64)))
    assert one is not None and other is not None
    assert len(one) == PLACES
    assert np.array_equal(one, other)


def test_a_text_without_enough_of_its_own_has_no_signature() -> None:
    assert signature(shingles_of(APACHE * 20 + "from .core import run\n")) is None
    assert signature(shingles_of(CODE)) is None


@pytest.mark.parametrize(
    "header",
    [
        APACHE,
        "#!/bin/sh\n\n" + APACHE + "\n",
        "/* SPDX: MIT\n * Copyright\n */\n// more\n",
        "<!-- License: MIT -->\n",
        "-- Licence\n",
    ],
)
def test_a_licence_header_does_not_count(header: str) -> None:
    assert body(header + CODE) == CODE


@pytest.mark.parametrize(
    "text",
    [
        "# What this is for\n" + CODE,
        '"""Copyright"""\n' + CODE,
        CODE + "# Copyright\n",
        "/* a comment that never ends: licence\n",
        "",
    ],
)
def test_only_comments_with_a_licence_at_the_head_are_left_out(text: str) -> None:
    assert body(text) == text


def test_a_preprocessor_line_ends_the_head() -> None:
    assert body("/* Copyright */\n#include <stdio.h>\n") == "#include <stdio.h>\n"


def test_exact_jaccard_counts_each_shingle_once() -> None:
    one = np.array([1, 2, 2, 3], dtype=np.uint64)
    assert jaccard(one, np.array([2, 3, 4], dtype=np.uint64)) == 0.5
    assert jaccard(one[:0], one[:0]) == 0.0
