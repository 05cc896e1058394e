"""The dry run says what memory the stages will take."""

from __future__ import annotations

from pathlib import Path

import pytest

from etude.pipeline.recipe.read import read_recipe
from etude.pipeline.recipe.recipe import Recipe
from etude.pipeline.run import memory_plan as plans
from etude.pipeline.run.memory_plan import document, lines, memory_plan

CHECKPOINT = Path(__file__).parents[3] / "checkpoints" / "sft-nano"


def _recipe(*overrides: str) -> Recipe:
    return read_recipe([], list(overrides))


def test_every_stage_that_holds_a_model_has_a_row() -> None:
    plan = memory_plan(_recipe(), ["corpus", "short", "sft", "rl", "bench", "report"])
    assert [stage.stage for stage in plan] == ["short", "sft", "rl", "bench"]
    by_name = {stage.stage: stage for stage in plan}
    assert by_name["sft"].trainer and not by_name["sft"].engine
    assert by_name["rl"].trainer and by_name["rl"].engine
    assert by_name["bench"].engine and not by_name["bench"].trainer


@pytest.mark.parametrize(
    ("fewer", "more"),
    [
        ("sft.batch_tokens=1024", "sft.batch_tokens=65536"),
        ("sft.loop.recompute=true", "sft.loop.recompute=false"),
        ("sft.lora.rank=8", "sft.lora.rank=0"),
    ],
)
def test_settings_that_save_memory_lower_the_prediction(fewer: str, more: str) -> None:
    size = "sft.batch_tokens=16384"
    small, large = (memory_plan(_recipe(size, setting), ["sft"])[0].trainer for setting in (fewer, more))
    assert small < large


def test_a_stage_that_does_not_fit_is_named_with_what_would_help(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "memory_bytes", lambda: 2_000_000_000)
    plan = memory_plan(_recipe("sft.batch_tokens=200000"), ["sft"])
    assert not document(plan)[0]["fits"]
    (line,) = lines(plan)
    assert "more than this machine has; sft.loop.recompute = true takes" in line
    assert "lower batch_tokens" in line


def test_a_fit_is_said_without_advice() -> None:
    (line,) = lines(memory_plan(_recipe("sft.batch_tokens=512"), ["sft"]))
    assert line.startswith("# memory of sft: trainer ") and "more than" not in line


def test_the_beginning_of_all_prompts_is_measured_with_the_checkpoints_own_renderer() -> None:
    recipe = _recipe(f'run.sft_checkpoint="{CHECKPOINT}"')
    prefix = plans.shared_prompt_tokens(recipe)
    assert 0 < prefix < recipe.engine.max_len
    assert plans.shared_prompt_tokens(_recipe()) == 0


def test_a_model_that_transformers_computes_is_not_predicted() -> None:
    named = f'run.sft_checkpoint="{CHECKPOINT}"'
    assert memory_plan(_recipe(named), ["rl"]) and not memory_plan(_recipe(named, "model.impl=transformers"), ["rl"])


def test_a_folder_of_tasks_that_is_not_there_stops_no_prediction_of_sft(tmp_path: Path) -> None:
    recipe = _recipe(f'run.sft_checkpoint="{CHECKPOINT}"', f'tasks.folder="{tmp_path / "lost"}"')
    assert memory_plan(recipe, ["sft"])[0].trainer


def test_what_computes_on_a_gpu_is_not_held_against_the_machines_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "memory_bytes", lambda: 2_000_000_000)
    plan = memory_plan(_recipe("rl.device=cuda", "engine.device=cuda", "sft.loop.device=cuda"), ["sft", "rl"])
    assert [row["on_gpu"] for row in document(plan)] == [["trainer"], ["engine", "trainer"]]
    assert all(row["fits"] for row in document(plan))
    sft, rl = lines(plan)
    assert sft.endswith("GB on a GPU")
    assert rl.count("on a GPU") == 2 and rl.endswith(
        "of 2.0 GB"
    )  # states on their way to the engine are not on the GPU
    monkeypatch.setattr(plans, "memory_bytes", lambda: 1_000)
    assert lines(plan)[1].endswith("take one with more memory")
    assert document(plan)[1]["published_bytes"] and not document(plan)[0]["published_bytes"]
