"""Muon treats a stack as its matrices, makes updates orthogonal, and every parameter has exactly one optimizer."""

import pytest
import torch
from torch import nn

from etude.learn.train.optimizer import Muon, build_optimizers, orthogonalize
from etude.learn.train.settings import OptimizerSettings


def run_muon(params, steps=4):
    optimizer = Muon(params, lr=0.02, weight_decay=0.1)
    for step in range(steps):
        for p in params:
            p.grad = torch.sin(p.detach() * 7 + step)
        optimizer.step()
    return params


@pytest.mark.parametrize("shape", [(5, 12, 7), (3, 7, 12), (1, 6, 6)])
def test_a_stack_of_matrices_learns_as_each_matrix_alone(shape):
    start = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    (stack,) = run_muon([nn.Parameter(start.clone())])
    singles = [run_muon([nn.Parameter(matrix.clone())])[0] for matrix in start]
    torch.testing.assert_close(stack, torch.stack(singles), rtol=0, atol=1e-6)


def test_matrices_of_one_shape_run_together_and_do_not_mix():
    start = [torch.randn(8, 4, generator=torch.Generator().manual_seed(i)) for i in range(3)]
    together = run_muon([nn.Parameter(s.clone()) for s in start])
    for s, p in zip(start, together, strict=True):
        torch.testing.assert_close(run_muon([nn.Parameter(s.clone())])[0], p, rtol=0, atol=1e-6)


@pytest.mark.parametrize("shape", [(16, 64), (64, 16), (32, 32)])
def test_newton_schulz_makes_the_update_nearly_orthogonal_and_keeps_its_directions(shape):
    update = torch.randn(1, *shape, generator=torch.Generator().manual_seed(1))
    u, _, vh = torch.linalg.svd(update[0], full_matrices=False)
    inner = u.T @ orthogonalize(update)[0] @ vh.T  # diagonal: the new singular values
    assert 0.3 < inner.diagonal().min() and inner.diagonal().max() < 1.3
    assert (inner - torch.diag(inner.diagonal())).abs().max() < 1e-3


def test_muon_agrees_with_torch_on_a_square_matrix():
    """Same rule, other precision: torch's Newton-Schulz runs in bf16, hence the tolerance."""
    start = torch.randn(32, 32, generator=torch.Generator().manual_seed(2))
    grad = torch.randn(32, 32, generator=torch.Generator().manual_seed(3))
    ours, theirs = nn.Parameter(start.clone()), nn.Parameter(start.clone())
    ours.grad, theirs.grad = grad.clone(), grad.clone()
    Muon([ours], lr=0.02, momentum=0.95).step()
    torch.optim.Muon([theirs], lr=0.02, momentum=0.95, weight_decay=0.0).step()
    moved, expected = ours.detach() - start, theirs.detach() - start
    assert torch.cosine_similarity(moved.flatten(), expected.flatten(), dim=0) > 0.999
    assert abs(moved.norm() / expected.norm() - 1) < 0.03


def test_vectors_are_refused_by_muon():
    with pytest.raises(ValueError, match=r"\(3,\)"):
        Muon([nn.Parameter(torch.zeros(3))], lr=0.1)


class Toy(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed_tokens = nn.Embedding(10, 4)
        self.kv_a = nn.Linear(4, 2, bias=False)
        self.up = nn.Linear(4, 8)
        self.experts = nn.Parameter(torch.zeros(3, 4, 4))
        self.lm_head = nn.Linear(4, 10, bias=False)
        self.frozen = nn.Parameter(torch.zeros(4, 4), requires_grad=False)


@pytest.mark.parametrize(
    ("settings", "muon"),
    [
        (OptimizerSettings(), {"kv_a.weight", "up.weight", "experts"}),
        (OptimizerSettings(low_rank="adamw"), {"up.weight", "experts"}),
        (OptimizerSettings(matrices="adamw"), set()),
    ],
)
def test_every_trainable_parameter_has_exactly_one_optimizer(settings, muon):
    model = Toy()
    optimizers = build_optimizers(model, settings)
    names = {id(p): name for name, p in model.named_parameters() if p.requires_grad}
    owned = [names[id(p)] for p in optimizers.params]
    assert sorted(owned) == sorted(names.values())
    by_muon = {
        names[id(p)] for part in optimizers.parts if isinstance(part, Muon) for p in part.param_groups[0]["params"]
    }
    assert by_muon == muon


def test_the_factor_scales_peaks_and_does_not_compound():
    optimizers = build_optimizers(Toy(), OptimizerSettings(muon_lr=0.5, adam_lr=0.25))
    for factor in (0.5, 0.5, 0.1):
        optimizers.set_factor(factor)
    assert {g["lr"] for part in optimizers.parts for g in part.param_groups} == {0.05, 0.025}
