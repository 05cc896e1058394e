"""Promise 2 (token in, token out) and promise 3 (provenance per token), at the place where segments grow."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.core.trace.builder import SegmentBuilder, merge_routes
from etude.core.trace.completion import SampledTokens
from etude.core.trace.segment import NO_ROUTE

ids = st.lists(st.integers(0, 999), max_size=8)


def sampled(tokens: list[int], version: int = 0) -> SampledTokens:
    return SampledTokens(tokens, [-0.5] * len(tokens), [version] * len(tokens))


@given(turns=st.lists(st.tuples(ids, ids.filter(bool)), min_size=1, max_size=5))
def test_prompts_that_extend_the_held_tokens_give_one_segment_with_exactly_the_sampled_ids(
    turns: list[tuple[list[int], list[int]]],
) -> None:
    builder, expected, mask = SegmentBuilder(), [], []
    for version, (rendered, answer) in enumerate(turns):
        assert builder.prompt([*builder.open_ids, *rendered])
        builder.sample(sampled(answer, version))
        expected += rendered + answer
        mask += [False] * len(rendered) + [True] * len(answer)
    [segment] = builder.segments()
    assert segment.ids.tolist() == expected and segment.sampled.tolist() == mask
    assert (segment.logprobs[~segment.sampled] == 0).all() and (segment.versions[~segment.sampled] == -1).all()
    assert (segment.logprobs[segment.sampled] == -0.5).all()
    assert builder.forks == 0 and builder.total_tokens == len(segment)


@given(held=ids.filter(bool), answer=ids.filter(bool), at=st.integers(0, 20), prompt=ids)
def test_a_prompt_that_changes_any_held_token_forks(
    held: list[int], answer: list[int], at: int, prompt: list[int]
) -> None:
    builder = SegmentBuilder()
    builder.prompt(held)
    builder.sample(sampled(answer))
    whole = builder.open_ids.copy()
    changed = whole.copy()
    changed[at % len(whole)] += 1
    assert not builder.prompt([*changed, *prompt])
    builder.sample(sampled([7]))
    assert builder.forks == 1
    assert [s.ids.tolist() for s in builder.segments()] == [whole, [*changed, *prompt, 7]]


def test_a_prompt_shorter_than_the_held_tokens_forks() -> None:
    builder = SegmentBuilder()
    builder.prompt([1, 2, 3])
    builder.sample(sampled([4]))
    assert not builder.prompt([1, 2])


def test_segments_without_sampled_tokens_are_left_out() -> None:
    builder = SegmentBuilder()
    builder.extend([1, 2])
    builder.begin()
    builder.extend([3])
    builder.sample(sampled([4]))
    assert [s.ids.tolist() for s in builder.segments()] == [[3, 4]]


def test_missing_provenance_is_refused() -> None:
    with pytest.raises(ValueError, match="2 ids but 1 logprobs"):
        SegmentBuilder().sample(SampledTokens([1, 2], [-0.1], [0, 0]))


def test_the_first_route_of_a_position_wins_and_unforwarded_rows_are_marked() -> None:
    first = np.full((3, 1, 2), 1, dtype=np.uint8)
    second = np.full((4, 1, 2), 2, dtype=np.uint8)
    routes = merge_routes([(0, first), (2, second)], 8)
    assert routes is not None and routes[:, 0, 0].tolist() == [1, 1, 1, 2, 2, 2, NO_ROUTE, NO_ROUTE]


def test_routes_outside_of_the_segment_are_refused() -> None:
    with pytest.raises(ValueError, match="route_start counts from the segment's first token"):
        merge_routes([(6, np.zeros((3, 1, 2), dtype=np.uint8))], 8)


def test_routes_of_a_dense_model_stay_none() -> None:
    builder = SegmentBuilder()
    builder.sample(sampled([1]))
    assert builder.segments()[0].routes is None
