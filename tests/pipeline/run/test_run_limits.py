"""Limits that a recipe leaves out follow from the preset and the model's context window; those that it sets stay as they are."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path

import pytest

from etude.agent.chat.special import SPECIAL_TOKENS
from etude.cli.prepare import prepare
from etude.cli.run import run as run_verb
from etude.evaluate.bench.suites.builtin import TaskSuite
from etude.evaluate.bench.suites.manifest import SuiteManifest
from etude.learn.corpus.tokenizer import train_tokenizer
from etude.learn.model.config import ModelConfig
from etude.learn.model.hf_config import to_hf_config
from etude.learn.model.settings import ModelSettings
from etude.pipeline.recipe.errors import RecipeError
from etude.pipeline.recipe.recipe import Recipe
from etude.pipeline.run import limits
from etude.pipeline.run.checkpoint_participant import checkpoint as checkpoint_participant
from etude.pipeline.run.limits import EngineRoom, engine_room, fit_limits
from etude.pipeline.run.policy_options import PolicyArgument, PolicyOptions, SuiteContext, UnknownPolicy


@pytest.fixture(autouse=True)
def roomy_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "memory_bytes", lambda: 1 << 40)


def checkpoint(folder: Path, **config: object) -> Path:
    folder.mkdir(exist_ok=True)
    raw = to_hf_config(ModelConfig.from_settings(ModelSettings.model_validate({"max_positions": 8192}), 300))
    (folder / "config.json").write_text(json.dumps(raw | config))
    return folder


def fitted(tmp_path: Path, *overrides: str) -> Recipe:
    return prepare(["ci"], [f"run.sft_checkpoint={checkpoint(tmp_path / 'c')}", *overrides], None).recipe


def test_the_laptops_recipe_keeps_its_numbers(tmp_path):
    recipe = prepare(["laptop"], [], None).recipe
    assert (recipe.harness.max_session_tokens, recipe.harness.max_tokens_per_turn, recipe.engine.max_len) == (
        640,
        96,
        1024,
    )


def test_a_large_models_preset_gets_limits_of_the_checkpoints_window(tmp_path):
    found = fitted(tmp_path, "harness.preset=search_replace")
    assert found.engine.max_len == 8192
    assert found.harness.max_tokens_per_turn == 8192 // 5 and found.harness.max_session_tokens == 4 * 8192
    assert found.harness.max_turns == 40 and found.harness.max_tool_bytes == 8192


def test_what_the_recipe_sets_stays(tmp_path):
    found = fitted(tmp_path, "harness.preset=patch", "harness.max_session_tokens=640", "engine.max_len=3000")
    assert found.harness.max_session_tokens == 640 and found.engine.max_len == 3000
    assert (
        found.harness.max_tokens_per_turn == 600 and found.harness.summary_trigger_tokens == 220
    )  # the ci recipe's own


def test_the_cache_of_all_slots_fits_the_memory_of_the_machine(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "memory_bytes", lambda: 1 << 30)
    found = fitted(tmp_path, "harness.preset=full")
    shape = ModelConfig.from_settings(ModelSettings.model_validate({}), 300)
    token = 4 * shape.layers * shape.cache_width
    assert found.engine.max_len == 8192 and found.engine.max_slots == found.engine.max_batch == found.rl.slots < 64
    assert found.engine.max_slots * token * 8192 <= 1 << 28 < (found.engine.max_slots + 1) * token * 8192
    found = fitted(tmp_path, "harness.preset=full", "engine.max_slots=64", "rl.slots=64")
    assert 64 * token * found.engine.max_len <= 1 << 28
    assert 1024 <= found.engine.max_len < 8192 and found.engine.max_slots == 64


def test_no_memory_is_too_small_for_a_few_slots(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "memory_bytes", lambda: 1 << 20)
    found = fitted(tmp_path, "harness.preset=full")
    assert (found.engine.max_slots, found.rl.slots, found.engine.max_len) == (4, 4, 1024)


def test_a_window_that_no_one_chose_has_a_bound(tmp_path):
    recipe = Recipe.model_validate({"model": {"max_positions": 1_000_000}, "harness": {"preset": "full"}})
    assert fit_limits(recipe).engine.max_len == limits.CONTEXT_TOKENS


def test_a_fitted_recipe_reads_back_as_itself(tmp_path):
    from etude.pipeline.recipe.read import read_recipe, resolved_toml

    found = fitted(tmp_path, "harness.preset=minimal")
    (tmp_path / "recipe.toml").write_text(resolved_toml(found))
    assert fit_limits(read_recipe([tmp_path / "recipe.toml"])) == found


@pytest.mark.parametrize(
    "config", [{"model_type": "llama"}, {"num_hidden_layers": 10**9}, {"quantization_config": {"bits": 4}}]
)
def test_a_dry_run_refuses_a_checkpoint_that_the_model_code_can_not_build(tmp_path, config):
    folder = checkpoint(tmp_path / "c", **config)
    with pytest.raises(RecipeError, match=f"run.sft_checkpoint = {folder}: the model code can't load this checkpoint"):
        run_verb(["ci"], [f"run.sft_checkpoint={folder}"], tmp_path / "out", only="rl", dry_run=True)


def test_a_dry_run_of_rl_refuses_temperature_0(tmp_path):
    with pytest.raises(RecipeError, match="harness.temperature = 0"):
        run_verb(["ci"], ["harness.temperature=0"], tmp_path / "out", dry_run=True)
    run_verb(["ci"], ["harness.temperature=0"], tmp_path / "out", only="corpus", dry_run=True)


def test_a_dry_run_refuses_a_tokenizer_that_lacks_what_a_stage_writes(tmp_path):
    folder = checkpoint(tmp_path / "c")
    init = f"model.init={folder}"
    with pytest.raises(RecipeError, match=f"model.init = {folder}: no tokenizer at "):
        run_verb(["ci"], [init], tmp_path / "out", only="corpus", dry_run=True)
    train_tokenizer(["def f(x):\n    return x\n"] * 4, ["<|im_end|>"], 300).save(str(folder / "tokenizer.json"))
    with pytest.raises(RecipeError, match="has no tokens for fill-in-the-middle .* set corpus.fim_rate to 0"):
        run_verb(["ci"], [init, "corpus.fim_rate=0.5"], tmp_path / "out", only="corpus", dry_run=True)
    run_verb(["ci"], [init, "corpus.fim_rate=0"], tmp_path / "out", only="corpus", dry_run=True)
    with pytest.raises(
        RecipeError, match=r"the stage sessions can't write its demonstrations in this model's chat format"
    ):
        run_verb(["ci"], [init], tmp_path / "out", only="sessions", dry_run=True)
    with pytest.raises(
        RecipeError, match=r"run\.without leaves the stage sessions out, and sft\.collected names no folder"
    ):
        run_verb(
            ["ci"],
            ['run.without=["sessions", "competent_sft"]', "run.sft_checkpoint="],
            tmp_path / "out",
            only="sft",
            dry_run=True,
        )
    with pytest.raises(RecipeError, match="harness.preset = search_replace: the scripted expert has to search"):
        off = 'harness.tools_off=["grep", "shell"]'
        run_verb(["ci"], ["harness.preset=search_replace", off], tmp_path / "out", only="sessions", dry_run=True)
    with pytest.raises(
        RecipeError, match="a new model has the laptop's chat format, which holds the tools of nano alone"
    ):
        run_verb(["ci"], ["harness.preset=search_replace"], tmp_path / "out", only="sessions", dry_run=True)
    train_tokenizer(["def f(x):\n    return x\n"] * 4, SPECIAL_TOKENS, 400).save(str(folder / "tokenizer.json"))
    run_verb(["ci"], [init, "corpus.fim_rate=0.5"], tmp_path / "out", first="corpus", last="sessions", dry_run=True)


def test_a_checkpoint_without_a_recipe_gets_what_the_memory_holds(monkeypatch):
    config = ModelConfig.from_settings(ModelSettings.model_validate({"max_positions": 262_144}), 300)
    token = 4 * config.layers * config.cache_width

    def room(tokens: int, sessions: int, window: int | None = None) -> EngineRoom:
        monkeypatch.setattr(limits, "memory_bytes", lambda: 2 * token * tokens)
        return engine_room(config, sessions, window)

    assert room(1 << 30, 8) == (8, 32_768), "agents seldom fill more"
    assert room(8 * 20_000, 8) == (8, 16_384)
    assert room(3 * 8192, 8) == (3, 8192), "fewer slots come before a short window"
    assert room(3000, 8) == (1, 2048)
    assert room(8 * 20_000, 8, window=40_000) == (4, 40_000)
    assert room(10, 8) == (1, 1024)


def test_a_window_longer_than_the_checkpoints_is_refused_in_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr("etude.agent.chat.load.load_renderer", lambda folder: object())
    argument = PolicyArgument("", "", f"checkpoint:{checkpoint(tmp_path / 'c')}", "medium")
    context = SuiteContext(None, Recipe(), PolicyOptions(context_tokens=9000), None)  # type: ignore[arg-type]  # refused before
    with pytest.raises(
        UnknownPolicy, match="--context 9000 is more than the model's 8192 positions; give at most 8192"
    ):
        checkpoint_participant(argument, context)
    (tmp_path / "c" / "config.json").write_text("{}")
    with pytest.raises(UnknownPolicy, match="checkpoint:.*model_type"):
        checkpoint_participant(argument, context)


def test_a_checkpoint_keeps_the_limits_of_a_published_models_recipe(tmp_path, monkeypatch):
    monkeypatch.setattr("etude.agent.chat.load.load_renderer", lambda folder: object())
    monkeypatch.setattr(
        "etude.pipeline.run.checkpoint_participant.harness_of", lambda agent, settings, renderer: ("", {})
    )
    monkeypatch.setattr("etude.pipeline.run.checkpoint_identity.identity", lambda folder: {})
    argument = PolicyArgument("", "", f"checkpoint:{checkpoint(tmp_path / 'c')}", "medium")
    manifest = SuiteManifest(name="s", version="1", released=date(2026, 1, 1))
    suite = TaskSuite(manifest, [], make=None, graders={})  # type: ignore[arg-type]  # of no task

    def settings(recipe: Recipe, **options):
        return checkpoint_participant(argument, SuiteContext(suite, recipe, PolicyOptions(**options), None)).harness  # type: ignore[arg-type]

    harness = {"preset": "search_replace", "max_turns": 8, "max_tokens_per_turn": 160, "tools_off": ["todo"]}
    own = Recipe.model_validate({"harness": harness, "engine": {"max_len": 3072}})
    found = settings(own)
    assert (found.preset, found.max_turns, found.max_tokens_per_turn) == ("search_replace", 8, 160)
    assert found.tools_off == ("todo",) and found.max_session_tokens == 4 * 3072, (
        "what the recipe leaves out fits its window"
    )
    assert settings(own, preset="full", context_tokens=2048).max_session_tokens == 4 * 2048
    laptop = settings(Recipe())
    assert (laptop.preset, laptop.max_turns) == ("full", 40), "the laptop's limits are those of its nano model"
