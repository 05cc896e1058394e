"""What ranks exchange in a step, counted without other processes."""

from __future__ import annotations

import pytest
import torch.distributed

from etude.learn.model.config import ModelConfig
from etude.learn.model.count import count_parameters
from etude.learn.model.lora_settings import LoraSettings
from etude.learn.parallel.layout import ParallelLayout
from etude.learn.plan.exchanges import ExchangeKind, PlannedStep, Traffic, recorded, sent, some_layers, step_exchanges
from etude.learn.plan.shapes import published_shape

SMALL = {"vocab_size": 64, "hidden_size": 32, "heads": 4, "dense_intermediate": 48}
SPARSE = {**SMALL, "layers": 5, "experts": 8, "experts_per_token": 2, "moe_intermediate": 16, "first_dense": 2}
DENSE = {**SMALL, "family": "qwen3", "layers": 4, "kv_heads": 2, "head_dim": 8}
WINDOWED = {**SMALL, "family": "gemma3_text", "layers": 6, "kv_heads": 2, "head_dim": 8, "window": 8, "window_layers": (0, 1, 3, 4)}  # fmt: skip
MIB = 1 << 20


def _by(traffic: Traffic, what: str, collective: str) -> int:
    return sum(bytes for kind, bytes in traffic.items() if (kind.what, kind.collective) == (what, collective))


@pytest.mark.parametrize("shape", [SPARSE, DENSE, WINDOWED], ids=["sparse", "dense", "windowed"])
@pytest.mark.parametrize("recompute", [False, True])
def test_layers_of_a_kind_are_recorded_once_and_count_as_often_as_they_are(
    shape: dict[str, object], recompute: bool
) -> None:
    config = ModelConfig.model_validate(shape)
    layout = ParallelLayout(replicate=2, shard=4, experts=2 if config.experts else 1, context=2)
    step = PlannedStep(layout, rows=2, length=24, recompute=recompute)
    assert step_exchanges(config, step) == sent(recorded(config, step))


@pytest.mark.parametrize("scored", [False, True])
def test_of_micro_batches_two_are_recorded_and_count_for_all(scored: bool) -> None:
    config = ModelConfig.model_validate(SPARSE)
    step = PlannedStep(ParallelLayout(shard=4, experts=2), 2, 24, batches=4, scored=scored)
    assert step_exchanges(config, step) == sent(recorded(config, step))


def test_weights_are_gathered_twice_and_gradients_summed_once() -> None:
    config = ModelConfig.model_validate(DENSE)
    traffic = step_exchanges(config, PlannedStep(ParallelLayout(shard=4), 1, 16))
    whole = 4 * count_parameters(config).total
    root = (
        4 * (2 * config.vocab_size + 1) * config.hidden_size
    )  # embedding, head and last norm stay whole for the backward pass
    assert _by(traffic, "gradients", "reduce_scatter") == whole * 3 // 4
    assert _by(traffic, "weights", "all_gather") == (2 * whole - root) * 3 // 4


def test_copies_add_their_gradients_up() -> None:
    config = ModelConfig.model_validate(DENSE)
    traffic = step_exchanges(config, PlannedStep(ParallelLayout(replicate=2, shard=4), 1, 16))
    assert _by(traffic, "gradients", "all_reduce") == 4 * count_parameters(config).total // 4


def test_adapters_alone_send_gradients() -> None:
    config, lora = ModelConfig.model_validate(DENSE), LoraSettings(rank=4)
    whole, adapters = (
        step_exchanges(config, PlannedStep(ParallelLayout(shard=2), 1, 16, lora=each)) for each in (None, lora)
    )
    assert 0 < _by(adapters, "gradients", "reduce_scatter") < 0.5 * _by(whole, "gradients", "reduce_scatter")
    assert _by(adapters, "weights", "all_gather") > _by(whole, "weights", "all_gather")


def test_tokens_go_to_their_experts_and_back_in_both_passes() -> None:
    config = ModelConfig.model_validate(SPARSE)
    traffic = step_exchanges(config, PlannedStep(ParallelLayout(shard=4, experts=4), 1, 16))
    visits = 16 * config.experts_per_token
    rows = 4 * visits * config.hidden_size * 4  # there and back, forward and backward, in fp32
    numbers = visits * 8 + 4 * 8  # which expert each row is for, and how many rows each rank gets
    layers = len(config.moe_layers)
    assert _by(traffic, "tokens of experts", "all_to_all") == layers * (rows + numbers) * 3 // 4


def test_experts_and_their_tokens_travel_in_bf16_where_products_are() -> None:
    config, layout = ModelConfig.model_validate(SPARSE), ParallelLayout(shard=8, experts=4)
    full, half = (step_exchanges(config, PlannedStep(layout, 1, 16, compute)) for compute in ("fp32", "bf16"))
    apart = ExchangeKind("weights", "all_gather", (0, 4))
    assert half[apart] == full[apart] // 2 > 0
    numbers = len(config.moe_layers) * (16 * config.experts_per_token * 8 + 4 * 8) * 3 // 4
    tokens = ("tokens of experts", "all_to_all")
    assert _by(half, *tokens) - numbers == (_by(full, *tokens) - numbers) // 2
    whole = ("gradients", "reduce_scatter")
    assert _by(half, *whole) == _by(full, *whole)  # sums stay in fp32


def test_latents_of_kimi_at_32k_are_31_and_a_half_mib_a_layer() -> None:
    kimi = some_layers(published_shape("kimi-k2.5"), [0, 1])
    step = PlannedStep(ParallelLayout(shard=8, experts=8, context=8), 1, 32_768, "bf16")
    traffic = sent(recorded(kimi, step))
    assert _by(traffic, "keys and values", "all_gather") == 2 * 31.5 * MIB
    assert _by(traffic, "keys and values", "reduce_scatter") == 2 * 31.5 * MIB


@pytest.mark.parametrize(
    "ranks", [(0, 511), pytest.param((1, 5, 63, 255, 256, 400), marks=pytest.mark.nightly)], ids=["ends", "between"]
)
def test_all_of_512_ranks_exchange_in_the_same_order(ranks: tuple[int, ...]) -> None:
    config = some_layers(ModelConfig.model_validate(SPARSE), [0, 2])
    step = PlannedStep(ParallelLayout(replicate=2, shard=256, experts=8, context=4), 1, 2_000, recompute=True)
    orders = []
    for rank in ranks:
        exchanges = recorded(config, step, rank)
        assert all(rank in exchange.kind.ranks for exchange in exchanges)
        orders.append([(e.kind.what, e.kind.collective, len(e.kind.ranks), e.sent) for e in exchanges])
    assert len(orders[0]) > 20
    assert all(order == orders[0] for order in orders)


def test_a_plan_is_not_made_inside_of_training() -> None:
    from torch.testing._internal.distributed.fake_pg import FakeStore

    config = ModelConfig.model_validate(DENSE)
    torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    try:
        with pytest.raises(RuntimeError, match="process group"):
            recorded(config, PlannedStep(ParallelLayout(shard=2), 1, 16))
    finally:
        torch.distributed.destroy_process_group()
    assert not torch.distributed.is_initialized()
