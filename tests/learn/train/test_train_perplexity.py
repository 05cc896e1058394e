"""Codebase perplexity equals its definition: every token once, with as much before it as the rolling window gives."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from etude.learn.train.perplexity import CodebasePerplexity, _batches, _counted, codebase_perplexity, difference


def by_hand(model, stream: list[int], window: int, stride: int) -> np.ndarray:
    """(T,) negative log-likelihood of each token of the stream, one window after the other."""
    nats = np.zeros(len(stream))
    done, start = 1, 0
    while done < len(stream):
        ids = torch.tensor([stream[start : start + window]])
        logp = torch.log_softmax(model(ids).logits[0].detach(), -1)
        for place in range(done, start + ids.shape[1]):
            nats[place] = -float(logp[place - start - 1, stream[place]])
        done, start = start + ids.shape[1], start + stride
    return nats


@pytest.mark.parametrize(("window", "stride"), [(8, 3), (8, 7), (16, 8), (64, 32)])
def test_it_equals_the_definition_window_by_window(model, window: int, stride: int) -> None:
    rng = np.random.default_rng(0)
    files = [rng.integers(0, 40, n).tolist() for n in (5, 1, 17, 9)]
    read: list[int] = []
    found = codebase_perplexity(model, files, [11, 2, 40, 20], window=window, stride=stride, done=read.append)
    assert read == sorted(read) and read[-1] == 32
    wanted = by_hand(model, sum(files, []), window, stride)
    ends = np.cumsum([0, *map(len, files)])
    assert found.nats == pytest.approx([wanted[a:b].sum() for a, b in pairwise(ends)], abs=1e-4)
    assert found.tokens == 31 and found.bits_per_byte == pytest.approx(wanted.sum() / math.log(2) / 73, abs=1e-5)
    assert found.perplexity == pytest.approx(math.exp(wanted.sum() / 31), rel=1e-5)
    low, high = found.ci95()
    assert low <= found.bits_per_byte <= high


@settings(max_examples=200, deadline=None)
@given(length=st.integers(2, 200), window=st.integers(2, 40), data=st.data())
def test_every_token_but_the_first_is_counted_once_with_its_share_of_context(length, window, data) -> None:
    stride = data.draw(st.integers(1, window - 1))
    times, context = np.zeros(length, int), np.zeros(length, int)
    for start in (s for batch in _batches(length, window, stride) for s in batch):
        counted = _counted(start, min(window, length - start), window, stride)
        places = start + np.flatnonzero(counted)
        times[places] += 1
        context[places] = places - start
    assert times[0] == 0 and (times[1:] == 1).all()
    assert (context[1:] >= np.minimum(np.arange(1, length), window - stride)).all()


def test_what_cannot_be_read_is_named(model) -> None:
    with pytest.raises(ValueError, match="stride of 8 with a window of 8"):
        codebase_perplexity(model, [[1, 2, 3]], [3], window=8, stride=8)
    with pytest.raises(ValueError, match=f"positions end at {model.config.max_positions}: take a smaller window"):
        codebase_perplexity(model, [[1, 2, 3]], [3], window=model.config.max_positions + 1, stride=1)
    with pytest.raises(ValueError, match="1 files hold 1 tokens: there is nothing to predict"):
        codebase_perplexity(model, [[1]], [3], window=8, stride=4)


def figures(nats: list[float], counts: list[int]) -> CodebasePerplexity:
    return CodebasePerplexity(np.array(nats), np.array(counts), 100)


def test_a_difference_is_paired_by_file() -> None:
    """Files differ far more than the checkpoints do: unpaired intervals would hide what every file shows."""
    rng = np.random.default_rng(0)
    before = rng.uniform(10, 1000, 40)
    found = difference(figures(list(before), [100] * 40), figures(list(before - 5), [100] * 40))
    assert found.bits_per_byte == pytest.approx(-5 / math.log(2) / 100)
    assert found.ci95 == pytest.approx((found.bits_per_byte, found.bits_per_byte))
    low, high = figures(list(before), [100] * 40).ci95()
    assert high - low > 1


def test_a_difference_of_other_files_is_refused() -> None:
    with pytest.raises(ValueError, match="same files and one tokenizer"):
        difference(figures([1.0, 2.0], [3, 4]), figures([1.0, 2.0], [3, 5]))
