"""Dealing a batch to ranks: nothing lost, nothing twice, groups together as far as they can be, and no rank far above the mean."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.core.trace.segment import Rollout, Segment
from etude.learn.model.count import ComputeCost
from etude.learn.model.init import new_model
from etude.learn.model.settings import ModelSettings
from etude.learn.train.balance import FINEST, bundles, deal, dealt, imbalance, rows_to_train

COST = ComputeCost(token=1000.0, pair=3.0)
COSTS = st.lists(st.floats(0.01, 1e6), max_size=40)


def a_segment(length: int, shared: int, trained: bool = True) -> Segment:
    """Its first `shared` tokens are those of every other segment here."""
    sampled = np.zeros(length, bool)
    sampled[-1] = trained
    ids = np.concatenate((np.arange(shared), np.random.default_rng(length).integers(1000, 9000, length - shared)))
    flat = np.zeros(length, np.float32)
    return Segment(ids.astype(np.int32), sampled, flat, np.zeros(length, np.int32), None)


def a_rollout(group: int, lengths: list[int], trained: bool = True) -> Rollout:
    return Rollout(f"{group}", "t", group, [a_segment(length, min(150, length - 1), trained) for length in lengths])


BATCHES = st.lists(
    st.builds(
        a_rollout, st.integers(0, 3), st.lists(st.integers(2, 400), min_size=1, max_size=4), st.sampled_from([True] * 4 + [False])
    ),
    max_size=12,
)  # fmt: skip


@given(COSTS, st.integers(1, 9))
def test_every_item_is_dealt_once_and_the_same_way_again(costs: list[float], ranks: int) -> None:
    found = deal(costs, ranks)
    assert len(found) == ranks and sorted(itertools.chain(*found)) == list(range(len(costs)))
    assert deal(costs, ranks) == found and all(items == sorted(items) for items in found)


@given(COSTS, st.integers(1, 9))
def test_no_rank_carries_more_than_the_mean_and_a_part_of_the_dearest(costs: list[float], ranks: int) -> None:
    mean, dearest = sum(costs) / ranks, max(costs, default=0.0)
    fullest = max(sum(costs[i] for i in items) for items in deal(costs, ranks))
    assert fullest <= (mean + (1 - 1 / ranks) * dearest) * (1 + 1e-9)


@given(st.lists(st.integers(1, 50), min_size=1, max_size=7), st.integers(2, 3))
def test_within_a_third_of_the_best_dealing_there_is(costs: list[int], ranks: int) -> None:
    def fullest(owners: tuple[int, ...]) -> int:
        return max(sum(c for c, o in zip(costs, owners, strict=True) if o == rank) for rank in range(ranks))

    best = min(fullest(owners) for owners in itertools.product(range(ranks), repeat=len(costs)))
    ours = max(sum(costs[i] for i in items) for items in deal(costs, ranks))
    assert ours <= (4 / 3 - 1 / (3 * ranks)) * best + 1e-9


@given(BATCHES, st.integers(1, 5))
def test_every_row_is_trained_by_one_rank(rollouts: list[Rollout], ranks: int) -> None:
    found = dealt(rollouts, COST, ranks)
    assert len(found.rows) == ranks
    assert sorted(itertools.chain(*found.rows)) == sorted(rows_to_train(rollouts))
    order = {row: n for n, row in enumerate(rows_to_train(rollouts))}
    assert all([order[row] for row in rows] == sorted(order[row] for row in rows) for rows in found.rows)


@given(BATCHES, st.integers(2, 5))
def test_bundles_are_neighbours_of_one_group_and_cut_only_where_they_cost_too_much(
    rollouts: list[Rollout], ranks: int
) -> None:
    found = bundles(rollouts, COST, ranks)
    assert [row for bundle in found for row in bundle.rows] == rows_to_train(rollouts)
    most = FINEST * sum(bundle.cost for bundle in bundles(rollouts, COST, 1)) / ranks
    for bundle in found:
        assert len({rollouts[r].group for r, _ in bundle.rows}) == 1
        assert len(bundle.rows) == 1 or bundle.cost <= most
    for one, after in itertools.pairwise(found):
        if rollouts[one.rows[0][0]].group == rollouts[after.rows[0][0]].group:
            assert one.cost + alone(rollouts, after.rows[0]) > most, "cut although both would have fitted"


def alone(rollouts: list[Rollout], row: tuple[int, int]) -> float:
    length = len(rollouts[row[0]].segments[row[1]])
    return COST.of(length, [length])


@given(BATCHES, st.integers(2, 5))
def test_no_rank_carries_a_quarter_above_the_mean_unless_one_row_is_that_dear(
    rollouts: list[Rollout], ranks: int
) -> None:
    found = dealt(rollouts, COST, ranks)
    if rows := rows_to_train(rollouts):
        mean = sum(bundle.cost for bundle in bundles(rollouts, COST, ranks)) / ranks
        dearest = max(FINEST, max(alone(rollouts, row) for row in rows) / mean)
        assert found.imbalance <= (1 + (1 - 1 / ranks) * dearest) * (1 + 1e-9)


def test_common_beginnings_are_paid_once() -> None:
    bundle, _ = bundles([a_rollout(0, [104, 54]), a_rollout(1, [5000])], ComputeCost(1.0, 0.0), 2)
    assert bundle.rows == ((0, 0), (0, 1)) and bundle.cost == 104 + 54 - 53


def test_long_segments_cost_more_than_their_share_of_tokens() -> None:
    assert COST.of(4000, [4000]) > 2 * COST.of(2000, [2000]) > 0
    assert COST.of(3, [3]) == 3 * 1000 + 6 * 3


@pytest.mark.parametrize("family", ["deepseek_v3", "qwen3_moe"])
def test_the_models_cost_counts_what_a_token_passes_and_what_its_heads_compare(family: str) -> None:
    settings = ModelSettings(
        family=family, hidden_size=32, layers=3, heads=2, kv_lora_rank=16, nope_dim=8, rope_dim=4, v_dim=8, kv_heads=1, head_dim=8,
        dense_intermediate=48, moe_intermediate=16, experts=4, experts_per_token=2,
    )  # fmt: skip
    model = new_model(settings, 40)
    cost = ComputeCost.of_model(model.config)
    assert cost.pair == 3 * 2 * (8 + 4 + 8 if family == "deepseek_v3" else 8 + 8)
    experts = sum(p.numel() for name, p in model.named_parameters() if ".experts." in name)
    assert cost.token == sum(p.numel() for p in model.parameters()) - experts / 2


def test_heavy_tailed_lengths_are_dealt_almost_evenly_where_round_robin_is_far_off() -> None:
    rng = np.random.default_rng(0)
    ours, naive = [], []
    for _ in range(20):
        lengths = np.minimum(200 * (1 + rng.pareto(1.2, 64)), 4000).astype(int)
        costs = [COST.of(length, [length]) for length in lengths.tolist()]
        ours.append(imbalance(costs, deal(costs, 4)))
        naive.append(imbalance(costs, [list(range(rank, 64, 4)) for rank in range(4)]))
    assert np.median(ours) < 1.02 < 1.3 < np.median(naive)


def test_no_rank_is_refused() -> None:
    with pytest.raises(ValueError, match="0 ranks"):
        deal([1.0], 0)
