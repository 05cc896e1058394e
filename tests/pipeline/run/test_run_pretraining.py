"""The stages base, short and long on a corpus of three sources: what each leaves for the next, and what it refuses."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from etude.agent.chat.check import check_model
from etude.agent.chat.special import SPECIAL_TOKENS
from etude.core.events.log import EventLog
from etude.learn.corpus.shards import write_shards
from etude.learn.corpus.tokenizer import train_tokenizer
from etude.learn.model.adapter_files import save_adapter
from etude.learn.model.adapters import add_adapters, merged_state
from etude.learn.model.card import origin_of
from etude.learn.model.causal_lm import CausalLM
from etude.learn.model.checkpoint import load_checkpoint, load_config
from etude.learn.model.lora_settings import LoraSettings
from etude.learn.model.named_checkpoint import checkpoint_folder
from etude.pipeline.recipe.errors import RecipeError
from etude.pipeline.recipe.recipe import Recipe
from etude.pipeline.run.hub_checkpoints import commits, resolve_checkpoints, with_folders
from etude.pipeline.run.stage import Context, StageError
from etude.pipeline.run.stages import base, long, mtp, short
from etude.pipeline.run.stages.pretraining import mixture_of

VOCABULARY = 400
STAGES = {"base": base.run, "short": short.run, "long": long.run}  # before long, mtp
SMALL = {"row_tokens": 32, "batch_rows": 2, "loop": {"steps": 4, "checkpoint_every": 2}}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run whose corpus stage is done: exercises, files and projects of `ours`, and its lookups."""
    corpus = tmp_path / "run" / "corpus"
    rng = np.random.default_rng(0)
    lengths = {"exercises.files": 30, "ours.files": 80, "ours.projects": 400, "ours.lookups": 60}
    for split, count in (("train", 12), ("heldout", 4)):
        for name, length in lengths.items():
            documents = [rng.integers(30, VOCABULARY, length).tolist() for _ in range(count)]
            write_shards(corpus / split / name, documents)
    text = " ".join(f"def word{n}(a, b): return {n}" for n in range(300))
    train_tokenizer([text], SPECIAL_TOKENS, VOCABULARY).save(str(corpus / "tokenizer.json"))
    (corpus / "summary.json").write_text(json.dumps({"vocabulary": VOCABULARY}))
    return tmp_path / "run"


def recipe(**changes: dict[str, Any]) -> Recipe:
    tiny = {"hidden_size": 32, "layers": 2, "heads": 2, "kv_heads": 1, "head_dim": 16, "dense_intermediate": 48}
    model = {"family": "qwen3_moe", "moe_intermediate": 16, "experts": 4, **tiny, **changes.get("model", {})}
    phases = {
        "base": {},
        "short": {"midway": 0.5, "replay": 0.25, "regression": {"every": 2}},
        "long": {
            "form": "projects",
            "lookups": 0.3,
            "replay": 0.2,
            "row_tokens": 128,
            "yarn_factor": 4,
            "packing": False,
        },
    }
    pretrain = {name: {**SMALL, **phase, **changes.get(name, {})} for name, phase in phases.items()}
    return Recipe.model_validate({"model": model, "pretrain": pretrain, "mtp": SMALL})


def context(run: Path, stage: str, **changes: dict[str, Any]) -> Context:
    return Context(recipe(**changes), run, stage, EventLog(run / "events.jsonl"))


def go(run: Path, *stages: str, **changes: dict[str, Any]) -> dict[str, dict[str, Any]]:
    for stage in stages:
        if stage == "long" and not (run / "mtp").is_dir():
            mtp.run(context(run, "mtp", **changes))
        STAGES[stage](context(run, stage, **changes))
    return {stage: json.loads((run / stage / "summary.json").read_text()) for stage in stages}


def test_each_phase_goes_on_where_the_one_before_ended(run: Path) -> None:
    summaries = go(run, "base", "short", "long")
    for stage in STAGES:
        assert (run / stage / "checkpoint" / "tokenizer.json").is_file()
        assert summaries[stage]["steps"] == 4 and summaries[stage]["heldout_bits_per_byte"] > 0
        assert summaries[stage]["heldout"].keys() == {"exercises.files", "ours.files"}
    weights = [load_checkpoint(run / stage / "checkpoint").head.weight for stage in STAGES]
    assert not torch.equal(weights[0], weights[1]) and not torch.equal(weights[1], weights[2])
    assert json.loads((run / "long" / "checkpoint" / "config.json").read_text())["eos_token_id"] == 2


def test_short_leaves_a_checkpoint_from_its_middle(run: Path) -> None:
    go(run, "base", "short")
    middle, end = (load_checkpoint(run / "short" / name) for name in ("midway", "checkpoint"))
    assert middle.config == end.config and not torch.equal(middle.head.weight, end.head.weight)
    assert (run / "short" / "midway" / "tokenizer.json").is_file()


def test_every_stage_leaves_a_complete_checkpoint_whose_card_lists_the_stages(run: Path) -> None:
    go(run, "base", "short", "long")
    folders = [
        run / name
        for name in ("base/checkpoint", "short/midway", "short/checkpoint", "mtp/checkpoint", "long/checkpoint")
    ]
    for folder in folders:
        report = check_model(folder)
        assert {check.name: check.state for check in report.checks}["files"] == "ok", folder
    stages = [[stage.stage for stage in origin_of(folder).stages] for folder in folders]
    assert stages == [
        ["base"],
        ["base", "short"],
        ["base", "short"],
        ["base", "short", "mtp"],
        ["base", "short", "long"],
    ]
    assert "ours.files" in origin_of(folders[2]).stages[1].data


def test_what_a_given_checkpoint_had_goes_through_all_stages(run: Path, tmp_path: Path) -> None:
    go(run, "base")
    given = (run / "base" / "checkpoint").rename(tmp_path / "given")
    (given / "generation_config.json").write_text('{"eos_token_id":2,"top_p":0.9}')
    (given / "README.md").write_text("---\nlicense: mit\n---\n# Given\n")
    go(run, "base", "short", model={"init": str(given)})
    made = run / "short" / "checkpoint"
    for name in ("generation_config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        assert (made / name).read_bytes() == (given / name).read_bytes()
    origin = origin_of(made)
    assert origin.base == "given" and dict(origin.licence) == {"license": "mit"}
    assert [stage.stage for stage in origin.stages] == ["short"]


def test_long_is_stretched_from_the_rows_it_was_trained_on(run: Path) -> None:
    go(run, "base", "short", "long")
    config = load_config(run / "long" / "checkpoint")
    assert config.yarn is not None and (config.yarn.original_positions, config.yarn.factor) == (32, 4)
    assert config.max_positions == 128
    assert load_config(run / "short" / "checkpoint").yarn is None


def test_a_given_checkpoint_is_the_base_as_it_is_and_is_stretched_from_its_own_positions(
    run: Path, tmp_path: Path
) -> None:
    go(run, "base")
    given = (run / "base" / "checkpoint").rename(tmp_path / "given")
    summaries = go(run, "base", "short", "long", model={"init": str(given)}, long={"row_tokens": 64, "yarn_factor": 2})
    before, after = load_checkpoint(given), load_checkpoint(run / "base" / "checkpoint")
    assert all(torch.equal(tensor, after.state_dict()[name]) for name, tensor in before.state_dict().items())
    assert (summaries["base"]["steps"], summaries["short"]["steps"]) == (0, 4)
    yarn = load_config(run / "long" / "checkpoint").yarn
    assert yarn is not None and yarn.original_positions == before.config.max_positions


def test_a_recipe_begins_with_an_adapter_as_with_a_checkpoint(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    go(run, "base")
    given = (run / "base" / "checkpoint").rename(tmp_path / "given")
    model, lora = load_checkpoint(given), LoraSettings(rank=2, dora=True)
    add_adapters(model, lora)
    with torch.no_grad():
        model.get_parameter(first_b(model)).add_(0.1)
    save_adapter(model, lora, tmp_path / "adapter", given)
    named = recipe(model={"init": str(tmp_path / "adapter")})
    found = resolve_checkpoints(named, run)
    located = with_folders(named, found).model.init
    go(run, "base", "short", model={"init": located})
    made, merged = load_checkpoint(run / "base" / "checkpoint").state_dict(), merged_state(model)
    assert all(torch.equal(made[name], tensor) for name, tensor in merged.items())
    assert [stage.stage for stage in origin_of(run / "short" / "checkpoint").stages] == ["base", "adapter", "short"]
    read = commits(found, ["model.init"])
    model.get_parameter(first_b(model)).data.add_(0.1)
    save_adapter(model, lora, tmp_path / "adapter", given)
    assert commits(resolve_checkpoints(named, run), ["model.init"]) != read and read
    (tmp_path / "adapter" / "adapter_config.json").write_text('{"peft_type": "LORA", "bias": "all"}')
    with pytest.raises(RecipeError, match="model.init = .*adapter: .* sets bias to 'all'"):
        resolve_checkpoints(named, run)


def first_b(model: CausalLM) -> str:
    return next(name for name, _ in model.named_parameters() if name.endswith("lora_b"))


def test_phases_that_train_adapters_leave_them_and_merged_checkpoints(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    lora = {"lora": {"rank": 2}, "optimizer": {"adam_lr": 0.05}}
    go(run, "base", "short", "long", short=lora, long=lora)
    states = {stage: load_checkpoint(run / stage / "checkpoint").state_dict() for stage in STAGES}
    joined = load_checkpoint(checkpoint_folder(run / "short" / "adapter")).state_dict()
    assert all(torch.equal(joined[name], tensor) for name, tensor in states["short"].items())
    for before, after in (("base", "short"), ("short", "long")):
        changed = {name for name, tensor in states[before].items() if not torch.equal(states[after][name], tensor)}
        assert changed and all("attention" in name or "feed" in name for name in changed)
    assert not (run / "long" / "adapter").exists()  # its base has no stretched positions
    assert "no adapter/ is left: positions were stretched" in (run / "events.jsonl").read_text()
    shutil.rmtree(run / "long")
    go(run, "long", long=lora | {"row_tokens": 32, "yarn_factor": 1, "loop": {"steps": 1}})
    assert (run / "long" / "adapter" / "adapter_config.json").is_file()


def test_rows_beyond_the_positions_are_refused_naming_the_key(run: Path) -> None:
    go(run, "base", "short")
    with pytest.raises(
        ValueError, match=r"pretrain.long.row_tokens = 256, but .* end at 128.*pretrain.long.yarn_factor"
    ):
        go(run, "long", long={"row_tokens": 256})


def test_a_phase_that_forgets_ends_early_and_says_so(run: Path) -> None:
    go(run, "base")
    guard = {"every": 1, "bar": 1e-9, "checks": 1}
    changes = {"regression": guard, "optimizer": {"adam_lr": 0.3, "muon_lr": 0.3}, "midway": 0.9}
    summary = go(run, "short", short=changes)["short"]
    assert summary["steps"] < 4 and "regression.bar" in summary["stopped"]
    assert (run / "short" / "midway" / "config.json").is_file()  # a start from the middle has something to start from
    assert '"regression_bits_per_byte"' in (run / "events.jsonl").read_text()


def test_a_lookup_longer_than_a_row_is_left_out(run: Path) -> None:
    assert "ours.lookups" in mixture_of(context(run, "long"), "long").names
    assert "ours.lookups" not in mixture_of(context(run, "short", short={"lookups": 0.3}), "short").names
    assert "no source has lookups: its share goes to the others" in (run / "events.jsonl").read_text()


def test_a_form_that_the_corpus_lacks_is_refused(run: Path) -> None:
    with pytest.raises(StageError, match="pretrain.base: the corpus has no documents of form files of theirs"):
        mixture_of(context(run, "base", base={"mix": {"theirs": 1}}), "base")
