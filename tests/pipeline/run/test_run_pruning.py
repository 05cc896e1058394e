"""Stages that a recipe leaves out: what follows reads what they would have read, or the recipe is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from etude.cli.prepare import prepare
from etude.pipeline.recipe.recipe import Recipe
from etude.pipeline.run.graph import GRAPH
from etude.pipeline.run.plan import PlanError
from etude.pipeline.run.pruning import TRAINING, WIDE, graph_of, prune, with_shares
from etude.pipeline.run.stage import Stage

ROOT = Path(__file__).parents[3]
CHAIN = (
    Stage("a", (), (), "", ""),
    Stage("b", ("a",), (), "", "", spared_by=("c", "d")),
    Stage("c", ("b",), (), "", "", spared_by=("d",)),
    Stage("d", ("b", "c"), (), "", "", also=("c",)),
    Stage("e", ("c",), (), "", ""),
)


def test_what_follows_a_stage_left_out_follows_what_was_before_it() -> None:
    a, d = prune(CHAIN, ["b", "c", "e"])
    assert (a.name, d.name, d.after, d.also) == ("a", "d", ("a",), ())


def test_nothing_left_out_is_the_same_graph() -> None:
    assert prune(GRAPH, []) == GRAPH


def test_a_stage_that_another_needs_is_refused_with_the_remedy() -> None:
    with pytest.raises(PlanError, match="run.without names c, which e needs: leave e out too"):
        prune(CHAIN, ["c"])


def test_an_unknown_stage_is_refused() -> None:
    with pytest.raises(PlanError, match="'sfft', which is no stage"):
        prune(GRAPH, ["sfft"])


def test_controls_and_bench_can_be_left_out_of_the_real_graph() -> None:
    left = prune(GRAPH, ["mtp", "long", "probes", "competent_sft", "attempts", "rewarded_sft", "trials", "bench"])
    assert [stage.name for stage in left] == ["corpus", "base", "short", "sessions", "sft", "rl", "report"]
    assert [stage.after for stage in left if stage.name == "sft"] == [("short", "sessions")]


def test_a_named_checkpoint_is_enough_for_rl_and_its_control() -> None:
    """Nothing before them is needed, in the order that there was."""
    named = Recipe.model_validate({"run": {"sft_checkpoint": "checkpoints/sft-nano"}})
    found = graph_of(named, GRAPH)
    assert [s.name for s in found] == [s.name for s in GRAPH]
    assert {s.name for s in found if s.after != GRAPH[found.index(s)].after} == {"rl", "attempts", "rewarded_sft"}
    assert all(s.after == () for s in found if s.name in ("rl", "attempts"))
    assert [s.after for s in found if s.name == "rewarded_sft"] == [("attempts", "rl")]
    assert graph_of(Recipe(), GRAPH) == GRAPH


PRETRAINING = ["corpus", "base", "short", "mtp", "long"]


def test_without_pretraining_the_stages_read_the_checkpoint_that_the_recipe_names() -> None:
    without = [*PRETRAINING, "probes", "competent_sft"]
    found = graph_of(Recipe.model_validate({"model": {"init": "m"}, "run": {"without": without}}), GRAPH)
    after, reads = {s.name: s.after for s in found}, {s.name: s.reads for s in found}
    assert after["sessions"] == () and after["sft"] == ("sessions",) and after["trials"] == ("sft",)
    assert {name for name, keys in reads.items() if "model.init" in keys} == {"sessions", "sft", "trials"}
    assert next(s.reads for s in GRAPH if s.name == "sessions") == tuple(
        k for k in reads["sessions"] if k != "model.init"
    )


def test_without_pretraining_a_recipe_has_to_name_a_checkpoint() -> None:
    with pytest.raises(
        PlanError, match="run.without names corpus, so sessions would read the checkpoint that model.init names"
    ):
        graph_of(Recipe.model_validate({"run": {"without": [*PRETRAINING, "probes", "competent_sft"]}}), GRAPH)


def test_the_run_can_learn_from_collected_sessions_alone() -> None:
    found = graph_of(Recipe.model_validate({"run": {"without": ["sessions", "competent_sft"]}}), GRAPH)
    assert {s.name: s.after for s in found}["sft"] == ("long", "corpus")
    with pytest.raises(PlanError, match="run.without names sessions, which competent_sft needs"):
        graph_of(Recipe.model_validate({"run": {"without": ["sessions"]}}), GRAPH)


def test_stages_that_train_a_wide_model_take_all_cores() -> None:
    assert with_shares(GRAPH, WIDE - 1) == GRAPH
    shares = {stage.name: stage.share for stage in with_shares(GRAPH, WIDE)}
    assert all(shares[name] == 1 for name in TRAINING)
    assert shares["sessions"] == 0.5


@pytest.mark.parametrize(("width", "share"), [(64, 0.5), (WIDE, 1.0)])
def test_a_run_takes_the_width_of_the_checkpoint_that_it_begins_with(tmp_path: Path, width: int, share: float) -> None:
    config = json.loads((ROOT / "checkpoints" / "sft-nano" / "config.json").read_text())
    (tmp_path / "init").mkdir()
    (tmp_path / "init" / "config.json").write_text(json.dumps(config | {"hidden_size": width}))
    run = prepare(["laptop"], [f"model.init={tmp_path / 'init'}"], tmp_path / "run")
    assert {stage.name: stage.share for stage in run.graph}["sft"] == share
