"""`etude gpu check` on a CPU, where everything is small: its parts measure, and one that fails is named and leaves the others theirs."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from etude.cli.gpu import part_lines
from etude.learn.gpu_check import check, training
from etude.learn.gpu_check.check import CheckedPart, ceilings, document, run_parts
from etude.learn.gpu_check.measuring import Scale
from etude.learn.gpu_check.sampling import decoding, experts
from etude.learn.gpu_check.training import difference, layouts, layouts_of, one_process
from etude.learn.parallel.layout import ParallelLayout

SMALL = replace(Scale.of("cpu", 2), rows=2, length=16, side=32, sessions=(2,), drawn=3)


def test_a_step_is_held_against_the_products_of_the_same_machine() -> None:
    rates = ceilings(SMALL)
    assert all(rate > 0 for rate in rates.values())
    found = one_process(SMALL, rates)
    assert set(found) == {
        f"{family}, {compute}" for family in ("deepseek_v3", "qwen3_moe") for compute in ("fp32", "bf16")
    }
    for row in found.values():
        assert row["tokens_per_s"] == pytest.approx(2 * 16 / row["step_s"])
        assert 0 < row["share_of_product"] and row["peak_bytes"] is None and row["planned_bytes"] > 0


@pytest.mark.nightly
def test_layouts_reach_the_weights_of_one_process() -> None:
    found = layouts(SMALL)
    assert set(found) == {"one process", "shard 2", "shard 2, experts 2", "shard 2, context 2", "replicate 2, shard 1"}
    assert all(row["agrees"] and 0 <= row["apart"] < 1e-3 for name, row in found.items() if name != "one process")
    assert document(SMALL, [CheckedPart("layouts", found)])["failed"] == {}


def test_ranks_with_other_weights_are_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "layouts_of", lambda ranks: [{"shard": ranks}])
    monkeypatch.setattr(training, "difference", lambda *models: 0.5)
    parts = [CheckedPart("layouts", layouts(SMALL))]
    assert document(SMALL, parts)["failed"] == {"layouts: shard 2": "other weights than one process"}


def test_models_are_apart_by_the_share_of_the_way_they_went() -> None:
    start, wanted, found = ({"w": torch.tensor([value])} for value in (0.0, 2.0, 1.5))
    assert difference(found, wanted, start) == pytest.approx(0.25)


@pytest.mark.parametrize("ranks", [2, 3, 4, 8])
def test_every_layout_has_all_ranks(ranks: int) -> None:
    assert all(ParallelLayout(**layout).ranks == ranks for layout in layouts_of(ranks))


def test_decoding_new_weights_and_experts_are_timed() -> None:
    found = decoding(SMALL)
    assert found["deepseek_v3, 2 sessions"]["tokens_per_s"] > 0 and found["qwen3_moe, new weights"]["milliseconds"] > 0
    assert all(set(row) == {"loop", "grouped", "dense"} for row in experts(SMALL).values())


def test_a_part_that_fails_is_named_and_leaves_the_others_their_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(scale: Scale) -> dict[str, float]:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(check, "decoding", broken)
    monkeypatch.setattr(check, "one_process", lambda scale, rates: {"a model": {"step_s": 0.5}})
    scale = replace(SMALL, ranks=1)
    parts = list(run_parts(scale))
    found = document(scale, parts)
    assert found["failed"] == {"decoding": "RuntimeError: out of memory"}
    assert set(found["parts"]) == {"ceilings", "one_process", "experts"} and not found["of_gpus"]
    assert found["not_measured"]["layouts"] == "one GPU: a layout needs two"
    assert "decoding: FAILED: RuntimeError: out of memory" in [line for part in parts for line in part_lines(part)]
    assert "  a model  step_s 0.5" in part_lines(parts[1])
