"""The three ways to run the experts are one function."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from etude.learn.model.experts import BACK_ENDS, ExpertWeights, _quickest, run_experts

EXPERTS, INNER, CHOSEN = 6, 8, 2


def reference(x, gate_up, down, experts, weights):
    """One token and one choice at a time."""
    rows = []
    for n in range(len(x)):
        row = torch.zeros_like(x[0])
        for e, w in zip(experts[n].tolist(), weights[n], strict=True):
            gate, up = (gate_up[e] @ x[n]).chunk(2)
            row = row + w * (down[e] @ (F.silu(gate) * up))
        rows.append(row)
    return torch.stack(rows)


# A hidden size of 10 is not a whole number of 16-byte words, which the grouped product needs and `auto` must avoid.
@pytest.mark.parametrize(("back_end", "hidden"), [*((name, 12) for name in BACK_ENDS), ("auto", 12), ("auto", 10)])
@pytest.mark.parametrize("tokens", [1, 7, 300])
@pytest.mark.parametrize("used", [2, EXPERTS])  # with two used, four experts stay empty
def test_back_ends_agree_with_their_gradients(back_end: str, hidden: int, tokens: int, used: int) -> None:
    generator = torch.Generator().manual_seed(tokens)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float32).requires_grad_()

    x, gate_up, down = draw(tokens, hidden), draw(EXPERTS, 2 * INNER, hidden), draw(EXPERTS, hidden, INNER)
    weights, upstream = draw(tokens, CHOSEN), draw(tokens, hidden)
    experts = torch.rand(tokens, used, generator=generator).topk(CHOSEN, -1).indices
    inputs = (x, gate_up, down, weights)
    results = []
    for y in (
        reference(x, gate_up, down, experts, weights),
        run_experts(x, ExpertWeights(gate_up, down), experts, weights, back_end),
    ):
        results.append((y, *torch.autograd.grad(y, inputs, upstream, retain_graph=True)))
    for expected, got in zip(*results, strict=True):
        assert (expected - got).abs().max() <= 2e-5 * max(1.0, float(expected.detach().abs().max()))


@pytest.mark.parametrize(
    ("tokens", "dtype", "expected"),
    [
        (64, torch.float32, "dense"),
        (256, torch.float32, "dense"),
        (257, torch.float32, "grouped"),
        (64, torch.bfloat16, "grouped"),
        (64, torch.float64, "loop"),
    ],
)
def test_few_fp32_tokens_off_the_cpu_go_through_every_expert(tokens: int, dtype: torch.dtype, expected: str) -> None:
    x = torch.empty(tokens, 1024, device="meta", dtype=dtype)
    down = torch.empty(32, 1024, 512, device="meta", dtype=dtype)
    choice = torch.empty(tokens, 4, device="meta", dtype=torch.long)
    assert _quickest(x, down, choice) == expected
    on_cpu = x.new_empty(x.shape, device="cpu")
    assert _quickest(on_cpu, down, choice) == ("loop" if tokens >= 512 or dtype == torch.float64 else "grouped")
