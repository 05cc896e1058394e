"""The plausibility filter keeps what the live router finds plausible, refills with its own best, and counts both."""

from functools import cache

import torch
from hypothesis import given
from hypothesis import strategies as st

from etude.core.trace.segment import NO_ROUTE
from etude.learn.model.init import new_model
from etude.learn.model.settings import ModelSettings
from etude.learn.train.next_token import routers
from etude.learn.train.replay import ReplayCounts, filtered_choice, replaying

SEEDS = st.integers(0, 1000)


@cache
def a_router():
    return routers(new_model(ModelSettings(hidden_size=8, layers=2, experts=4), vocab_size=10))[0]


def choice(ratio):
    counts = ReplayCounts()
    router = a_router()
    return filtered_choice(router.choose, ratio, counts), router, counts


def scores_and_routes(seed):
    generator = torch.Generator().manual_seed(seed)
    scores = torch.rand(9, 4, generator=generator)
    routes = torch.stack([torch.randperm(4, generator=generator)[:2] for _ in range(9)]).to(torch.uint8)
    routes[0] = NO_ROUTE
    return scores, routes


def test_by_hand():
    choose, _, counts = choice(0.5)
    scores = torch.tensor([[0.9, 0.8, 0.5, 0.1]])  # own top-2: 0, 1; threshold 0.4
    assert choose(scores, torch.tensor([[2, 1]], dtype=torch.uint8)).tolist() == [[2, 1]]
    assert choose(scores, torch.tensor([[2, 3]], dtype=torch.uint8)).tolist() == [[2, 0]]  # 3 is implausible
    assert choose(scores, torch.tensor([[3, NO_ROUTE]], dtype=torch.uint8)).tolist() == [[0, 1]]
    assert (counts.replayed, counts.replaced, counts.agreed) == (5, 2, 1)


def kept_and_filled(seed, ratio):
    choose, router, counts = choice(ratio)
    scores, routes = scores_and_routes(seed)
    own = router.choose(scores, None)
    got = choose(scores, routes)
    floor = ratio * scores.gather(1, own).min(1).values
    return scores, routes, own, got, floor, counts


@given(SEEDS, st.floats(0, 2))
def test_every_chosen_expert_is_plausible_or_own_and_none_twice(seed, ratio):
    scores, routes, own, got, floor, counts = kept_and_filled(seed, ratio)
    replaced = 0
    for n in range(len(scores)):
        plausible = {int(e) for e in routes[n] if e != NO_ROUTE and scores[n, int(e)] >= floor[n]}
        chosen = set(got[n].tolist())
        assert len(chosen) == 2
        assert plausible <= chosen
        assert chosen - plausible <= set(own[n].tolist())
        replaced += 0 if n == 0 else 2 - len(plausible)
    assert counts.replaced == replaced and counts.replayed == 16


@given(SEEDS)
def test_ratio_zero_is_pure_replay(seed):
    _, routes, own, got, _, counts = kept_and_filled(seed, 0.0)
    assert (got[1:] == routes[1:]).all() and (got[0] == own[0]).all()
    assert counts.replaced == 0


def test_routers_are_themselves_again_after_the_block(model):
    ids = torch.arange(6)[None]
    before = model(ids, return_routes=True).routes
    forced = (before + 1) % 4
    with replaying(model, 0.0):
        assert torch.equal(model(ids, forced_experts=forced, return_routes=True).routes, forced)
    assert torch.equal(model(ids, return_routes=True).routes, before)
    assert all("choose" not in vars(router) for router in routers(model))


def test_gradients_flow_through_a_replayed_router(model):
    ids = torch.arange(6)[None]
    forced = (model(ids, return_routes=True).routes + 1) % 4
    with replaying(model, 0.0):
        model(ids, forced_experts=forced).logits.square().sum().backward()
    assert all(router.weight.grad.abs().max() > 0 for router in routers(model))
