"""Every layout gives the loss, the routes and the gradients of one process, on 2 and 4 ranks."""

from __future__ import annotations

import pytest
from layout_lab import MODELS, Case, ranks_agree
from parallel_lab import run_ranks

from etude.learn.parallel.layout import ParallelLayout

FSDP, EP, CP = {"shard": 2}, {"shard": 2, "experts": 2}, {"shard": 2, "context": 2}
LAYOUTS = {
    2: [
        (FSDP, "padded"), (FSDP, "tree"), ({"replicate": 2}, "packed"), (EP, "padded"),
        (CP, "padded"), (CP, "packed"), (CP, "tree"), (CP | EP, "packed"),
    ],
    4: [
        ({"shard": 4}, "padded"),
        ({"replicate": 2, "shard": 2}, "packed"),
        ({"shard": 4, "experts": 2}, "tree"),
        ({"replicate": 2, "shard": 2, "experts": 2}, "padded"),
        ({"shard": 4, "context": 4}, "packed"),
        ({"shard": 4, "context": 2}, "tree"),
        ({"shard": 4, "context": 4, "experts": 2}, "padded"),
        ({"replicate": 2, "shard": 2, "context": 2, "experts": 2}, "packed"),
    ],
}  # fmt: skip
DAILY = [("deepseek_v3", 2)]  # the others nightly


def cases(name: str, count: int) -> list[Case]:
    """Each layout with each thing that is trained, as far as the model and the batch have it."""
    found = []
    for layout, batch in LAYOUTS[count]:
        if name == "qwen3" and "experts" in layout:
            continue
        whole_tree = batch != "tree" or layout.get("context", 1) == count
        kinds = ["weights", "lora"]
        kinds += ["replay"] if name != "qwen3" and whole_tree else []
        kinds += ["drafts"] if batch != "tree" else []  # draft layers learn from rows
        found += [Case(layout, batch, kind) for kind in kinds]
        found += [Case(layout, batch, kind, "bf16") for kind in kinds[:2] if batch != "tree"]
    return found


@pytest.mark.parametrize(
    ("name", "count"),
    [
        pytest.param(name, count, marks=[] if (name, count) in DAILY else pytest.mark.nightly)
        for name in MODELS
        for count in LAYOUTS
    ],
)
def test_layouts_have_the_loss_routes_and_gradients_of_one_process(name: str, count: int) -> None:
    wanted = cases(name, count)
    for found in run_ranks(count, ranks_agree, name, wanted):
        assert list(found) == [case.label for case in wanted]
        for label, case in found.items():
            # In bf16 a sum of two products is rounded once in one process, and as often as it has ranks here: by 0.4% of each number.
            loss, gradient, norm = (5e-4, 5e-2, 2e-3) if label.endswith("bf16") else (1e-6, 2e-6, 2e-6)
            assert case["loss"] <= loss and case["routes"] == 0, (label, case)
            assert case["gradient"] <= gradient and case["norm"] <= norm, (label, case)


def test_a_layout_that_does_not_divide_is_refused_with_the_numbers() -> None:
    with pytest.raises(ValueError, match="experts = 3 does not divide shard = 4"):
        ParallelLayout(shard=4, experts=3)
    with pytest.raises(ValueError, match="context = 4 does not divide shard = 2"):
        ParallelLayout(shard=2, context=4)
    with pytest.raises(ValueError, match="experts = 2, and the model's layers have 5 experts"):
        ParallelLayout(shard=2, experts=2).require_experts(5)
    with pytest.raises(ValueError, match="have no experts"):
        ParallelLayout(shard=2, experts=2).require_experts(0)
