"""Memory, time and what does not fit of a training on many GPUs."""

from __future__ import annotations

import pytest

from etude.learn.model.count import count_parameters
from etude.learn.model.lora_settings import LoraSettings
from etude.learn.model.step_memory import FLOAT, ModelSize, training_bytes
from etude.learn.parallel.layout import ParallelLayout
from etude.learn.plan.accelerators import ACCELERATORS
from etude.learn.plan.cluster_plan import ClusterPlan
from etude.learn.plan.exchanges import PlannedStep
from etude.learn.plan.rank_memory import UnitSize, rank_memory, split_training_bytes
from etude.learn.plan.shapes import SHAPES, published_shape

BILLION = 1e9


def _plan(name: str, layout: ParallelLayout, length: int, *, recompute: bool = True) -> ClusterPlan:
    step = PlannedStep(layout, 1, length, "bf16", recompute)
    return ClusterPlan(name, published_shape(name), step, ACCELERATORS["h100"], 0.4)


def test_kimi_has_the_parameters_that_its_publisher_states() -> None:
    count = count_parameters(published_shape("kimi-k2.5"))
    assert 1.02e12 < count.total < 1.03e12
    assert 1.04e12 < count.total + count.drafts < 1.05e12
    assert 31e9 < count.active < 33e9


@pytest.mark.parametrize(
    ("name", "total", "active"),
    [("deepseek-v3", 671, 37.6), ("glm-4.5-air", 106.9, 13.4), ("qwen3-30b-a3b", 30.5, 3.35), ("qwen3-4b", 4.02, 4.02)],
)
def test_published_shapes_have_their_parameters(name: str, total: float, active: float) -> None:
    count = count_parameters(published_shape(name))
    assert count.total / BILLION == pytest.approx(total, rel=0.005)
    assert count.active / BILLION == pytest.approx(active, rel=0.005)


def test_an_unknown_shape_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(ValueError, match="'gpt-5'.*kimi-k2.5"):
        published_shape("gpt-5")


@pytest.mark.parametrize("name", list(SHAPES))
def test_what_ranks_hold_together_is_the_model_and_its_moments(name: str) -> None:
    config = published_shape(name)
    memory = rank_memory(config, ParallelLayout(shard=8), 4096, 4096)
    parameters = ModelSize.of(config, 4096, 4096).parameters
    assert 8 * memory.held["weights"] == pytest.approx(FLOAT * parameters)
    assert 8 * memory.held["moments"] == pytest.approx(2 * FLOAT * parameters)
    assert memory.peak == sum(size for _, size in memory.parts)


def test_more_ranks_of_each_kind_take_less_memory_of_one() -> None:
    config = published_shape("qwen3-30b-a3b")

    def peak(tokens: int = 32_768, **layout: int) -> int:
        return rank_memory(config, ParallelLayout(**layout), tokens, 32_768, recompute=True).peak

    assert peak(shard=16) < peak(shard=8)
    assert peak(shard=8, experts=8) < peak(shard=8)
    assert peak(16_384, shard=8, context=2) < peak(shard=8)
    assert peak(replicate=2, shard=8) == peak(shard=8)


def test_a_rounded_base_of_adapters_takes_half_of_what_is_gathered() -> None:
    config, layout = published_shape("qwen3-30b-a3b"), ParallelLayout(shard=8, experts=8)
    exact, rounded = (
        rank_memory(config, layout, 4096, 4096, lora=LoraSettings(rank=8, base=base), compute="bf16").held
        for base in ("fp32", "bf16")
    )
    assert rounded["weights"] < 0.55 * exact["weights"]
    units = UnitSize.of(config)
    assert exact["gathered weights"] - rounded["gathered weights"] == 2 * 2 * (units.dense + units.experts // 8)


def test_one_rank_has_what_one_process_has() -> None:
    config = published_shape("qwen3-4b")
    memory = rank_memory(config, ParallelLayout(), 4096, 4096, recompute=True)
    size = ModelSize.of(config, 4096, 4096)
    assert memory.peak == training_bytes(size, 4096, recompute=True)


def test_ranks_of_one_machine_hold_a_whole_model_more() -> None:
    config, layout = published_shape("qwen3-4b"), ParallelLayout(shard=2)
    together = split_training_bytes(config, layout, 2048, 2048, recompute=True)
    each = rank_memory(config, layout, 2048, 2048, recompute=True).peak
    assert together == 2 * each + FLOAT * count_parameters(config).total


def test_the_largest_block_is_divided_by_the_experts_ranks() -> None:
    units = UnitSize.of(published_shape("kimi-k2.5"))
    assert units.root == (2 * 163_840 + 1) * 7168
    assert units.experts == 384 * 3 * 7168 * 2048
    assert units.block_bytes(64, (4, 4)) == 4 * (units.dense + units.experts // 64)
    assert units.block_bytes(64, (4, 2)) == 4 * units.dense + 2 * (units.experts // 64)


def test_a_step_counts_every_token_once() -> None:
    plan = _plan("qwen3-30b-a3b", ParallelLayout(replicate=2, shard=8, experts=8, context=4), 32_768)
    assert plan.step_tokens == 16 // 4 * 32_768
    assert plan.rank_tokens == 32_768 // 4
    # Six operations a parameter and token, and two more for the forward pass that is computed again (its attention comes on top).
    least = 8 * plan.parameters.active * plan.rank_tokens
    assert least < plan.operations < 4 * least


def test_a_step_of_rl_counts_its_micro_batches_its_scores_and_what_the_first_machine_holds() -> None:
    config, layout = published_shape("qwen3-30b-a3b"), ParallelLayout(shard=8, experts=8)
    one, many = (PlannedStep(layout, 1, 8192, "bf16", True, batches=n, scored=n > 1) for n in (1, 6))
    supervised = ClusterPlan("short", config, one, ACCELERATORS["h200"], 0.4)
    rl = ClusterPlan("rl", config, many, ACCELERATORS["h200"], 0.4, reference=True, published=3)
    assert rl.step_tokens == 6 * supervised.step_tokens
    assert rl.operations == pytest.approx(6 * supervised.operations * 5 / 4)  # four passes, and one for the logprobs
    whole = supervised.whole_model
    assert rl.memory.peak - supervised.memory.peak == -(-whole // 8)
    assert rl.whole_model == (1 + 1 + 3) * whole
    assert "6 micro-batches of 1 x 8,192 for each rank, each scored before" in rl.text(None, None)


def test_a_row_of_256k_on_512_gpus_that_does_not_fit_is_named_with_the_numbers() -> None:
    plan = _plan("kimi-k2.5", ParallelLayout(shard=512, experts=64, context=8), 262_144)
    (line,) = plan.misfits()
    assert f"needs {plan.memory.peak / 1e9:.2f} GB of 80.00 GB" in line
    assert not _plan("qwen3-30b-a3b", ParallelLayout(shard=16, experts=8), 8192).misfits()


@pytest.mark.nightly
def test_a_step_of_kimi_on_512_gpus_is_recorded() -> None:
    plan = _plan("kimi-k2.5", ParallelLayout(shard=512, experts=64, context=8), 262_144)
    low, high = plan.step_s
    assert 0 < low <= high == pytest.approx(plan.compute_s + plan.exchange_s)
    latents = {kind: sent for kind, sent in plan.traffic.items() if kind.what == "keys and values"}
    gathered = sum(sent for kind, sent in latents.items() if kind.collective == "all_gather")
    assert gathered == 2 * 61 * 252 * (1 << 20)  # twice, for blocks are computed again


def test_a_document_and_a_text_say_the_same() -> None:
    plan = _plan("qwen3-4b", ParallelLayout(shard=8), 4096)
    found, text = plan.document(1e9, 2.0), plan.text(1e9, 2.0)
    days, cost = found["total"]["days"], found["total"]["cost"]
    assert cost[1] == pytest.approx(24 * 8 * 2.0 * days[1])
    assert f"{days[0]:,.2f} to {days[1]:,.2f} days" in text
    assert sum(each["sent_bytes"] for each in found["exchanges"]) == sum(plan.traffic.values())
    assert found["rank_memory_bytes"]["peak"] == plan.memory.peak
    assert "does not fit" not in text


def test_one_gpu_exchanges_nothing() -> None:
    plan = _plan("qwen3-4b", ParallelLayout(), 4096)
    assert plan.document(None, None)["exchanges"] == []
    assert "sent by a rank" not in plan.text(None, None)
