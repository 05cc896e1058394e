"""Choice and weight are apart: the bias and a replay move the choice, live scores give the weight."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from etude.core.trace.segment import NO_ROUTE
from etude.learn.model.causal_lm import CausalLM
from etude.learn.model.config import ModelConfig
from etude.learn.model.router import Router, balanced_bias, expert_load
from etude.learn.model.settings import Architecture


def router(**fields) -> Router:
    made = Router(ModelConfig.from_settings(Architecture(hidden_size=6, **fields), 10))
    with torch.no_grad():
        made.weight.normal_(generator=torch.Generator().manual_seed(0))
    return made


def tokens(count: int = 50) -> torch.Tensor:
    return torch.randn(count, 6, generator=torch.Generator().manual_seed(1))


def test_forced_experts_reproduce_their_own_forward(any_model: CausalLM, ids: torch.Tensor) -> None:
    free = any_model(ids, return_routes=True)
    replayed = any_model(ids, forced_experts=free.routes, return_routes=True)
    assert torch.equal(replayed.routes, free.routes)
    assert (replayed.logits - free.logits).abs().max() <= 1e-6


def test_experts_forced_elsewhere_change_the_logits(any_model: CausalLM, ids: torch.Tensor) -> None:
    free = any_model(ids, return_routes=True)
    assert free.routes is not None
    moved = (free.routes + 1) % any_model.config.experts
    replayed = any_model(ids, forced_experts=moved, return_routes=True)
    assert torch.equal(replayed.routes, moved)
    assert (replayed.logits - free.logits).abs().max() > 1e-3


def test_no_route_leaves_the_choice_to_the_router(any_model: CausalLM, ids: torch.Tensor) -> None:
    free = any_model(ids, return_routes=True)
    assert free.routes is not None
    none = torch.full_like(free.routes, NO_ROUTE)
    assert torch.equal(any_model(ids, forced_experts=none).logits, free.logits)
    moved = (free.routes + 1) % any_model.config.experts
    mixed = torch.where(torch.arange(40).view(1, 40, 1, 1) < 20, none, moved)
    out = any_model(ids, forced_experts=mixed, return_routes=True)
    assert out.routes is not None
    assert torch.equal(out.routes[:, :20], free.routes[:, :20]) and torch.equal(out.routes[:, 20:], moved[:, 20:])


def test_a_half_forced_row_is_filled_with_the_best_of_the_rest() -> None:
    made, x = router(experts_per_token=3), tokens()
    _, own = made(x)
    worst = (x @ made.weight.t()).argmin(-1)
    forced = torch.full((50, 3), NO_ROUTE)
    forced[:, 1] = worst
    _, experts = made(x, forced)
    assert torch.equal(experts[:, 0], worst)
    assert torch.equal(experts[:, 1:], own[:, :2])


def test_gradient_reaches_the_router_through_replayed_experts() -> None:
    made, x = router(), tokens()
    weights, _ = made(x, (torch.arange(50).unsqueeze(1) + torch.tensor([0, 3])) % 8)
    weights[:, 0].sum().backward()
    assert made.weight.grad is not None
    assert (made.weight.grad.abs().sum(1) > 0).all()


def test_bias_affects_the_choice_only() -> None:
    made, x = router(routed_scale=2.5), tokens()
    assert made.bias is not None
    made.bias[:2] = 1.0  # above any difference of sigmoid scores: everyone chooses these two
    weights, experts = made(x)
    assert (experts.sort(-1).values == torch.tensor([0, 1])).all()
    scores = (x @ made.weight.t()).sigmoid().gather(1, experts)
    assert torch.allclose(weights, 2.5 * scores / scores.sum(-1, keepdim=True))


def test_choice_stays_within_the_best_groups() -> None:
    made = router(experts=12, expert_groups=4, groups_per_token=2, experts_per_token=5)
    x = tokens()
    _, experts = made(x)
    grouped = (x @ made.weight.t()).sigmoid().unflatten(-1, (4, 3))
    best = grouped.topk(2, -1).values.sum(-1).topk(2, -1).indices
    assert ((experts // 3).unsqueeze(2) == best.unsqueeze(1)).any(2).all()


@given(st.lists(st.integers(0, 100), min_size=4, max_size=4), st.floats(1e-4, 0.1))
def test_bias_moves_against_the_load_by_the_sign_rule(load: list[int], rate: float) -> None:
    moved = balanced_bias(torch.zeros(4), torch.tensor(load).float(), rate)
    mean = sum(load) / 4
    for count, step in zip(load, moved.tolist(), strict=True):
        assert step == pytest.approx(rate * ((mean > count) - (mean < count)))


def test_load_counts_every_choice_once() -> None:
    routes = torch.tensor([[[0, 1], [2, 3]], [[0, 2], [3, 1]]], dtype=torch.uint8)  # (N, L_moe, K)
    assert expert_load(routes, 4).tolist() == [[2, 1, 1, 0], [0, 1, 1, 2]]


def test_impossible_replays_are_refused(mla: CausalLM, ids: torch.Tensor) -> None:
    layers, chosen = 2, mla.config.experts_per_token
    with pytest.raises(ValueError, match=r"the model routes \(3, 40, 2, 2\)"):
        mla(ids, forced_experts=torch.zeros(3, 40, layers + 1, chosen, dtype=torch.uint8))
    with pytest.raises(ValueError, match="forced expert 8 does not exist"):
        mla(ids, forced_experts=torch.full((3, 40, layers, chosen), 8, dtype=torch.uint8))
