"""Stages other than rl whose recipe names vLLM as the engine. What needs vLLM itself is nightly and needs ETUDE_VLLM_PYTHON (docs/vllm.md)."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from etude.core.events.log import EventLog
from etude.learn.engine.vllm.found import VARIABLE, NoVllm
from etude.pipeline.recipe.read import read_recipe
from etude.pipeline.run.stage import Context
from etude.pipeline.run.stages import attempts, bench
from etude.pipeline.run.stages.loading import open_policy
from etude.pipeline.run.stages.pretraining import CHECKPOINT

ROOT = Path(__file__).parents[3]
SFT_NANO = ROOT / "checkpoints" / "sft-nano"
SMALL = [
    f'run.sft_checkpoint="{SFT_NANO}"',
    "run.control_share=0.1",
    "bench.tasks=8",
    "bench.tasks_per_level_min=1",
    "bench.tasks_discovery_min=1",
    "bench.passes=1",
    "bench.passes_scripted=1",
    "bench.resamples=200",
    "rl.steps=2",
    "rl.groups_per_step=2",
    "rl.solvable_tasks=0",
]


def context(run: Path, stage: str, python: str) -> Context:
    (run / stage).mkdir()
    engine = ["engine.kind=vllm", f'engine.vllm.python="{python}"', "engine.company=0", "engine.tick_s=0"]
    recipe = read_recipe([ROOT / "recipes" / "ci.toml"], [*SMALL, *engine])
    return Context(recipe, run, stage, EventLog(run / "events.jsonl"))


def notes(run: Path) -> str:
    return (run / "events.jsonl").read_text()


def test_a_python_without_vllm_is_refused_by_name_before_a_model_is_loaded(tmp_path: Path) -> None:
    with pytest.raises(NoVllm, match="has no vLLM .*install it there"):
        open_policy(context(tmp_path, "trials", sys.executable), tmp_path / "no-checkpoint", "sft")


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_attempts_and_bench_ask_vllm_where_the_recipe_names_it(tmp_path: Path) -> None:
    python = os.environ.get(VARIABLE, "")
    if not python:
        pytest.skip(f"{VARIABLE} names no Python that has vLLM (docs/vllm.md)")
    (tmp_path / "rl").mkdir()
    (tmp_path / "rl" / CHECKPOINT).symlink_to(SFT_NANO)
    for stage, body in (("attempts", attempts.run), ("trials", bench.run_trials), ("bench", bench.run)):
        body(context(tmp_path, stage, python))
    tried = json.loads((tmp_path / "attempts" / "summary.json").read_text())
    found = json.loads((tmp_path / "bench" / "summary.json").read_text())["bench"]
    assert tried["attempts"] > 0 and found["sft"]["tasks"] == found["rl"]["tasks"] == 8
    assert found["expert"]["avg"] > found["nop"]["avg"] == 0
    said = notes(tmp_path)
    for name in ("attempts", "sft", "rl"):
        assert f"answers for {name}, in float32" in said
    assert list((tmp_path / "trials" / "vllm").glob("*.log"))
