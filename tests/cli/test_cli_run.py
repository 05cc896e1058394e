"""`etude run` from the command line: which recipe and directory, and the plan without doing it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from here import Here

from etude.cli.prepare import prepare
from etude.cli.run import go
from etude.learn.model.device import DeviceMissing
from etude.pipeline.recipe.errors import RecipeError
from etude.pipeline.run.ledger import StageLedger
from etude.pipeline.run.manifest import RunManifest

ROOT = Path(__file__).parents[2]


def test_the_default_is_the_laptop_recipe_in_its_own_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = prepare(None, None, None)
    assert (run.recipe.run.name, run.folder) == ("laptop", Path("runs/laptop"))


def test_a_directory_goes_on_with_its_own_recipe_unless_one_is_named(tmp_path: Path) -> None:
    (tmp_path / "recipe.toml").write_text('[run]\nname = "mine"\n[rl]\nsteps = 3\n')
    assert prepare(None, None, tmp_path).recipe.rl.steps == 3
    assert prepare(None, ["rl.steps=4"], tmp_path).recipe.rl.steps == 4
    assert prepare(["ci"], None, tmp_path).recipe.run.name == "ci"


TRAINED = ["corpus", "base", "short", "mtp", "long", "sessions", "sft", "rl"]


def test_a_dry_run_shows_recipe_and_plan_and_writes_nothing(tmp_path: Path) -> None:
    answer = go(
        prepare(["ci"], ["rl.steps=3"], tmp_path / "r"),
        TRAINED,
        dry_run=True,
    )
    assert answer.document["recipe"]["rl"]["steps"] == 3
    assert [step["stage"] for step in answer.document["plan"]] == TRAINED
    assert "steps = 3" in answer.text and "# rl" in answer.text
    assert not (tmp_path / "r").exists()


def test_a_dry_run_says_the_numbers_that_a_begun_stage_keeps(tmp_path: Path) -> None:
    found = prepare(["ci"], ["run.sft_checkpoint=checkpoints/sft-nano"], tmp_path / "r")
    chosen = go(found, ["rl"], dry_run=True).document["memory"][0]["chosen"]
    assert chosen.keys() == {"rl.update.batch_tokens", "rl.update.graph_tokens"}
    RunManifest(found.folder).begin()
    ledger, stage = StageLedger(found.folder / "ledger.jsonl"), next(s for s in found.graph if s.name == "rl")
    ledger.start("rl", found.settings(stage), {})
    ledger.choose("rl", {"rl.update.batch_tokens": 640, "rl.update.graph_tokens": 7168})
    again = go(found, ["rl"], dry_run=True)
    assert again.document["plan"][0]["action"] == "resume" and not again.document["memory"][0]["chosen"]
    assert "# rl.update: graph_tokens = 7,168, as the stage began" in again.text


def test_an_engine_of_another_type_than_the_trainer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r'engine\.compute = "bf16" and rl\.update\.compute = "fp32"'):
        go(prepare(["ci"], ["engine.compute=bf16"], tmp_path / "r"), TRAINED, dry_run=True)
    with pytest.raises(
        RecipeError, match=r'engine\.expert_products = "nvfp4" and rl\.update\.expert_products = "plain"'
    ):
        go(prepare(["ci"], ["engine.expert_products=nvfp4"], tmp_path / "r"), TRAINED, dry_run=True)
    both = prepare(["ci"], ["engine.compute=bf16", "rl.update.compute=bf16"], tmp_path / "r")
    assert go(both, TRAINED, dry_run=True).document["recipe"]["engine"]["compute"] == "bf16"


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("sft.loop.parallel.experts=3", "experts = 3 does not divide shard = 2"),
        ("model.impl=transformers", "set it to one rank"),
        ("model.experts=5", "sft.loop.parallel: experts = 2, and the model's layers have 5 experts"),
    ],
)
def test_a_layout_that_a_stage_can_not_have_is_refused_before_anything_starts(
    setting: str, message: str, tmp_path: Path
) -> None:
    layout = ["sft.loop.parallel.shard=2", "sft.loop.parallel.experts=2", "mtp.loop.parallel.replicate=2"]
    init = [f"model.init={ROOT / 'checkpoints' / 'sft-nano'}"] if "impl" in setting else []
    with pytest.raises(RecipeError, match=re.escape(message)):
        go(prepare(["laptop"], [*layout, *init, setting], tmp_path / "r"), ["mtp", "sft"], dry_run=True)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("layout", [[], ["sft.loop.parallel.shard=2"]])
def test_a_gpu_that_is_not_there_is_refused_before_anything_starts(layout: list[str], tmp_path: Path) -> None:
    settings = ["sft.loop.device=cuda", *layout]
    stages = ["corpus", "base", "short", "mtp", "long", "sessions", "sft"]
    with pytest.raises(DeviceMissing, match=r'sft\.loop\.device = "cuda", and PyTorch .* finds no GPU'):
        go(prepare(["laptop"], settings, tmp_path / "r"), stages)
    assert not (tmp_path / "r").exists()
    go(prepare(["laptop"], settings, tmp_path / "r"), stages, dry_run=True)  # plans of other machines


@pytest.mark.parametrize("key", ["sft.loop.expert_products", "engine.expert_products"])
def test_a_format_of_experts_is_refused_for_a_dense_model_before_anything_starts(key: str, tmp_path: Path) -> None:
    dense = ["model.family=qwen3", f"{key}=mxfp8"]
    with pytest.raises(RecipeError, match=re.escape(f'{key} = "mxfp8", and the model has no experts')):
        go(prepare(["laptop"], dense, tmp_path / "r"), ["sft"], dry_run=True)


def test_a_missing_recipe_lists_those_there_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RecipeError, match="absent: there is no such recipe file; .*laptop"):
        prepare(["absent"], None, None)


def test_the_committed_checkpoint_is_found_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = prepare(["ci"], None, tmp_path / "r")
    assert Path(run.recipe.run.sft_checkpoint) == ROOT / "checkpoints" / "sft-nano"
    monkeypatch.chdir(ROOT)
    assert prepare(["ci"], None, tmp_path / "r").recipe.run.sft_checkpoint == "checkpoints/sft-nano"


@pytest.mark.parametrize("key", ["run.sft_checkpoint", "model.init"])
def test_a_checkpoint_that_is_not_there_is_reported_before_any_stage_runs(tmp_path: Path, key: str) -> None:
    run = prepare(["ci"], [f"{key}={tmp_path}/absent"], tmp_path / "r")
    with pytest.raises(RecipeError, match=f"{key} = .*absent: there is no checkpoint .*--set {key}="):
        go(run, TRAINED)
    assert not (tmp_path / "r").exists()


def test_a_bench_of_too_few_tasks_is_refused_before_any_training(tmp_path: Path) -> None:
    run = prepare(["ci"], ["bench.tasks=8"], tmp_path / "r")
    with pytest.raises(RecipeError, match="8 tasks are too few for 8 levels: ask for"):
        go(run, ["corpus", "bench"])
    assert not (tmp_path / "r").exists()


def test_a_module_that_can_not_be_imported_is_refused_before_any_stage_runs(here: Here, tmp_path: Path) -> None:
    own = tmp_path / "own.toml"
    own.write_text('[rl.rewards.weights]\n"my_module:reward" = 0.1\n')
    done = here("run", "ci", str(own), "--dry-run")
    assert done.returncode != 0 and done.stderr.count("\n") == 1
    assert "rl.rewards.weights: my_module:reward: the module my_module can't be imported" in done.stderr
    assert "PYTHONPATH" in done.stderr
    assert here("run", "ci", str(own), "--until", "sft", "--dry-run").returncode == 0, "RL is not among these stages"
