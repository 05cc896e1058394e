"""A policy step of RL over ranks that each hold a part of the model gives the logprobs and gradients of one process."""

from __future__ import annotations

import pytest
from layout_lab import MODELS
from parallel_lab import run_ranks
from policy_lab import PolicyCase, ranks_step_alike

LAYOUTS = {
    2: [{"shard": 2}, {"replicate": 2}, {"shard": 2, "context": 2}, {"shard": 2, "experts": 2}],
    4: [
        {"shard": 4},
        {"replicate": 2, "shard": 2},
        {"shard": 4, "context": 2},
        {"shard": 4, "context": 4, "experts": 2},
        {"shard": 4, "experts": 2},
        {"replicate": 2, "shard": 2, "experts": 2},
    ],
}
DAILY = [("deepseek_v3", 2)]  # the others nightly


def cases(name: str, count: int) -> list[PolicyCase]:
    """More rollouts than ranks, fewer, and groups that teach nothing."""
    layouts = [layout for layout in LAYOUTS[count] if name != "qwen3" or "experts" not in layout]
    found = [PolicyCase(layout, trained) for layout in layouts for trained in ("weights", "lora")]
    few = [
        PolicyCase(layout, "weights", rollouts=1) for layout in layouts if layout == layouts[-1] or "context" in layout
    ]
    return [*found, *few, PolicyCase(layouts[0], "weights", spread=False)]


@pytest.mark.parametrize(
    ("name", "count"),
    [
        pytest.param(name, count, marks=[] if (name, count) in DAILY else pytest.mark.nightly)
        for name in MODELS
        for count in LAYOUTS
    ],
)
def test_a_policy_step_of_a_split_model_is_that_of_one_process(name: str, count: int) -> None:
    wanted = cases(name, count)
    everywhere = run_ranks(count, ranks_step_alike, name, wanted)
    for found in everywhere:
        assert list(found) == [case.label for case in wanted]
        for label, case in found.items():
            assert case["names"] == case["whole"] == 0, (label, case)
            assert case["logprobs"] <= 1e-5 and case["gradient"] <= 4e-6, (label, case)
            assert case["norm"] <= 2e-6 and case["k3"] <= 1e-4, (label, case)
            assert case["bias"] == everywhere[0][label]["bias"], (label, case)
