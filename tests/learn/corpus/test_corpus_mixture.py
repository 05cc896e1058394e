"""Each source has its share of every epoch's tokens, none of its documents comes again before all have come, and an epoch is a pure function."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etude.learn.corpus.mixture import Mixture
from etude.learn.corpus.shards import TokenShards, write_shards

LENGTHS = st.lists(st.integers(1, 40), min_size=1, max_size=12)
SOURCES = st.lists(st.tuples(LENGTHS, st.floats(0.05, 1.0)), min_size=1, max_size=4)
FEW = settings(deadline=None, max_examples=60)


def mixture(folder: Path, sources: list[tuple[list[int], float]], seed: int = 0) -> Mixture:
    """Sources a, b, … of documents of the given lengths; the tokens of a document are its number."""
    shards: dict[str, TokenShards] = {}
    number = 0
    for name, (lengths, _) in zip("abcd", sources, strict=False):
        shards[name] = write_shards(folder / name, [[number + i] * length for i, length in enumerate(lengths)])
        number += len(lengths)
    return Mixture(shards, {name: share for name, (_, share) in zip("abcd", sources, strict=False)}, seed)


def tokens_by_source(found: Mixture, numbers: np.ndarray) -> np.ndarray:
    return np.bincount(found.source(numbers), found.lengths[numbers], minlength=len(found.names))


@FEW
@given(sources=SOURCES, epoch=st.integers(0, 5))
def test_shares_of_an_epochs_tokens_are_the_weights_within_one_document(
    tmp_path_factory: pytest.TempPathFactory, sources: list[tuple[list[int], float]], epoch: int
) -> None:
    found = mixture(tmp_path_factory.mktemp("shards"), sources)
    whole = sum(share for _, share in sources)
    tokens = tokens_by_source(found, found.epoch(epoch))
    for (lengths, share), got in zip(sources, tokens, strict=True):
        assert abs(got - found.total_tokens * share / whole) < max(lengths) + 1  # and half a token of rounding


@FEW
@given(sources=SOURCES)
def test_a_document_comes_again_only_after_all_of_its_source_have_come(
    tmp_path_factory: pytest.TempPathFactory, sources: list[tuple[list[int], float]]
) -> None:
    found = mixture(tmp_path_factory.mktemp("shards"), sources)
    times = Counter({number: 0 for number in range(len(found))})
    for epoch in range(6):
        times.update(found.epoch(epoch).tolist())
        for source in range(len(sources)):
            counts = [times[n] for n in range(len(found)) if found.source(np.array([n]))[0] == source]
            assert max(counts) - min(counts) <= 1


@FEW
@given(sources=SOURCES, epoch=st.integers(0, 3))
def test_an_epoch_is_a_pure_function_of_seed_and_number(
    tmp_path_factory: pytest.TempPathFactory, sources: list[tuple[list[int], float]], epoch: int
) -> None:
    folder = tmp_path_factory.mktemp("shards")
    walked = mixture(folder, sources)
    for before in range(epoch):
        walked.epoch(before)
    assert walked.epoch(epoch).tolist() == mixture(folder, sources).epoch(epoch).tolist()


@FEW
@given(lengths=LENGTHS, epoch=st.integers(0, 3))
def test_a_source_alone_is_read_whole_in_every_epoch(
    tmp_path_factory: pytest.TempPathFactory, lengths: list[int], epoch: int
) -> None:
    found = mixture(tmp_path_factory.mktemp("shards"), [(lengths, 0.3)])
    assert sorted(found.epoch(epoch).tolist()) == list(range(len(lengths)))


def test_a_document_is_the_tokens_of_its_source(tmp_path: Path) -> None:
    found = mixture(tmp_path, [([3, 1], 0.5), ([2], 0.5), ([4, 4], 1.0)])
    assert [found.document(n).tolist() for n in range(len(found))] == [[n] * int(found.lengths[n]) for n in range(5)]


def test_seeds_and_epochs_differ_in_order(tmp_path: Path) -> None:
    orders = [mixture(tmp_path, [([2] * 50, 1.0)], seed).epoch(epoch).tolist() for seed in (0, 1) for epoch in (0, 1)]
    assert len({tuple(order) for order in orders}) == 4


def test_shares_that_do_not_fit_the_sources_are_refused(tmp_path: Path) -> None:
    shards = write_shards(tmp_path, [[1, 2]])
    for shares in ({}, {"a": 0.0}, {"b": 1.0}):
        with pytest.raises(ValueError, match="do not give each of a a share above 0"):
            Mixture({"a": shards}, shares, 0)
    with pytest.raises(ValueError, match="no source"):
        Mixture({}, {}, 0)
