"""The three ways to run the experts are one function."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from etude.model.experts import BACK_ENDS, run_experts

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
    for y in (reference(x, gate_up, down, experts, weights), run_experts(x, gate_up, down, experts, weights, back_end)):
        results.append((y, *torch.autograd.grad(y, inputs, upstream, retain_graph=True)))
    for expected, got in zip(*results, strict=True):
        assert (expected - got).abs().max() <= 2e-5 * max(1.0, float(expected.detach().abs().max()))
