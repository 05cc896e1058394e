"""The dry run says what memory the stages will take."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from etude.core.events.log import EventLog
from etude.learn.model.count import count_parameters
from etude.pipeline.recipe.errors import RecipeError
from etude.pipeline.recipe.read import read_recipe
from etude.pipeline.recipe.recipe import Recipe
from etude.pipeline.run import memory_plan as plans
from etude.pipeline.run.graph import GRAPH
from etude.pipeline.run.ledger import StageLedger
from etude.pipeline.run.memory_plan import document, fit_update, lines, memory_plan
from etude.pipeline.run.plan import PlanStep, flat_settings, plan
from etude.pipeline.run.stage import Context
from etude.pipeline.run.stage_plan import starting_config
from etude.pipeline.run.stages.rl import fitted_update

ROOT = Path(__file__).parents[3]
CHECKPOINT = ROOT / "checkpoints" / "sft-nano"
# The shape of SmolLM2-135M.
LARGE = [
    *("model.family=llama", "model.layers=30", "model.hidden_size=576", "model.heads=9", "model.kv_heads=3"),
    *("model.head_dim=64", "model.dense_intermediate=1536"),
]


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


def test_the_ranks_of_a_layout_are_counted_together() -> None:
    alone, split, copied = (
        memory_plan(_recipe(*LARGE, *(f"sft.loop.parallel.{key}=2" for key in keys)), ["sft"])[0]
        for keys in ((), ("shard",), ("shard", "replicate"))
    )
    assert (alone.ranks, split.ranks, copied.ranks) == (1, 2, 4)
    assert alone.trainer < split.trainer < 1.6 * alone.trainer < copied.trainer < 2 * split.trainer
    assert "in 4 ranks" in lines([copied])[0]


def test_the_whole_model_of_the_first_rank_is_in_the_machines_memory_and_not_on_a_gpu() -> None:
    here, there = (
        memory_plan(_recipe(*LARGE, "sft.loop.parallel.shard=2", f"sft.loop.device={device}"), ["sft"])[0]
        for device in ("cpu", "cuda")
    )
    assert here.published == 0 and there.published == 4 * count_parameters(starting_config(_recipe(*LARGE))).total
    assert there.trainer <= here.trainer - there.published
    (line,) = lines([there])
    assert " in 2 ranks on GPUs and copies of the weights " in line


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
    sft, rl, _ = lines(plan)
    assert sft.endswith("GB on a GPU")
    assert rl.count("on a GPU") == 2 and rl.endswith(
        "of 2.0 GB"
    )  # states on their way to the engine are not on the GPU
    monkeypatch.setattr(plans, "memory_bytes", lambda: 1_000)
    assert lines(plan)[1].endswith("take one with more memory")
    assert document(plan)[1]["published_bytes"] and not document(plan)[0]["published_bytes"]


def _memory_of(monkeypatch: pytest.MonkeyPatch, gigabytes: float) -> None:
    monkeypatch.setattr(plans, "memory_bytes", lambda: int(gigabytes * 1e9))


def test_the_laptops_steps_stay_as_they_were_on_24_gb(monkeypatch: pytest.MonkeyPatch) -> None:
    _memory_of(monkeypatch, 24)
    batch, graph = fit_update(read_recipe([ROOT / "recipes" / "laptop.toml"], [])).update.step_tokens
    assert batch == 4096 and graph >= 40_000


def test_a_large_models_graph_and_batch_fit_what_weights_and_engine_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {}
    for gigabytes in (10, 16, 24):
        _memory_of(monkeypatch, gigabytes)
        (stage,) = memory_plan(_recipe(*LARGE), ["rl"])
        assert stage.total <= gigabytes * 1e9, (gigabytes, stage)
        found[gigabytes] = stage.chosen["rl.update.batch_tokens"], stage.chosen["rl.update.graph_tokens"]
    assert found[10] <= found[16] <= found[24] and found[10][1] < found[24][1] < 40_000
    assert fit_update(_recipe(*LARGE, "rl.update.recompute=true")).update.step_tokens[1] > found[24][1]


def test_where_nothing_fits_rows_go_nearly_one_by_one_and_no_graph_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    _memory_of(monkeypatch, 1)
    assert fit_update(_recipe(*LARGE)).update.step_tokens == (plans.BATCH_STEP, 0)


def test_a_number_of_the_recipe_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    _memory_of(monkeypatch, 24)
    both = fit_update(_recipe("rl.update.batch_tokens=100", "rl.update.graph_tokens=7"))
    assert both.update.step_tokens == (100, 7) and not both.chosen
    one = fit_update(_recipe("rl.update.batch_tokens=100"))
    assert one.update.step_tokens[0] == 100 and one.chosen == {"rl.update.graph_tokens": one.update.step_tokens[1]}


def test_ranks_and_engines_of_one_machine_share_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    _memory_of(monkeypatch, 24)
    alone = fit_update(_recipe(*LARGE)).update.step_tokens[1]
    assert fit_update(_recipe(*LARGE, "rl.ranks=2")).update.step_tokens[1] < alone / 2
    assert fit_update(_recipe(*LARGE, "rl.engines=3")).update.step_tokens[1] < alone


def test_with_tcmalloc_a_trainer_on_cpus_counts_more_and_fits_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    _memory_of(monkeypatch, 24)
    trainers = []
    for library in (None, "libtcmalloc_minimal.so.4"):
        monkeypatch.setattr(plans.allocator, "library", lambda name=library: name)
        (stage,) = memory_plan(_recipe(*LARGE), ["rl"])
        assert stage.total <= 24e9
        (fixed,) = memory_plan(_recipe("rl.update.batch_tokens=2048", "rl.update.graph_tokens=0"), ["rl"])
        trainers.append(fixed.trainer)
    assert trainers[1] == pytest.approx(plans.TCMALLOC_SHARE * trainers[0], abs=1)


def test_ranks_that_share_a_model_fit_its_memory_together(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for gigabytes in (8, 14, 24, 400):
        _memory_of(monkeypatch, gigabytes)
        recipe = _recipe(*LARGE, "rl.parallel.shard=2")
        (stage,) = memory_plan(recipe, ["rl"])
        found.append(stage.chosen["rl.update.batch_tokens"])
        assert stage.chosen["rl.update.graph_tokens"] == 0
        assert stage.total <= gigabytes * 1e9 or found[-1] == plans.BATCH_STEP, (gigabytes, stage)
        assert fit_update(recipe).update.step_tokens == (found[-1], 0)
    assert found == sorted(found) and found[0] == plans.BATCH_STEP < found[2] < found[3]
    _memory_of(monkeypatch, 24)
    for more in (
        ["rl.update.recompute=true"],
        ["rl.parallel.context=2"],
    ):  # ranks that share a micro-batch have a part of it each
        again = _recipe(*LARGE, "rl.parallel.shard=2", *more)
        assert fit_update(again).update.step_tokens[0] > found[2], more


def test_ranks_on_gpus_fit_the_memory_of_each(monkeypatch: pytest.MonkeyPatch) -> None:
    _memory_of(monkeypatch, 1)
    found = []
    for gigabytes in (4, 8, 80):
        monkeypatch.setattr(plans, "gpu_memory_bytes", lambda size=gigabytes: [size * 10**9] * 4)
        recipe = _recipe(*LARGE, "rl.parallel.shard=4", "rl.device=cuda")
        found.append(fit_update(recipe).update.step_tokens[0])
        (stage,) = memory_plan(recipe, ["rl"])
        assert stage.trainer <= 4 * gigabytes * 10**9
    assert found == sorted(found) and found[0] < found[-1] == 16_384


def test_a_trainer_on_a_gpu_takes_the_gpus_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    _memory_of(monkeypatch, 1)
    monkeypatch.setattr(plans, "gpu_memory_bytes", lambda: [80 << 30])
    batch, graph = fit_update(_recipe(*LARGE, "rl.device=cuda")).update.step_tokens
    assert batch == 16_384 and graph > 40_000
    shared = fit_update(_recipe(*LARGE, "rl.device=cuda", "engine.device=cuda")).update.step_tokens[1]
    assert shared < graph / 2


def test_a_memory_that_is_not_seen_here_keeps_no_graph_and_the_plan_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "gpu_memory_bytes", lambda: [])
    away = "cluster.address=10.0.0.1:6379", "cluster.trainer={CPU=4}"
    for settings in (["rl.device=cuda"], away):
        planned = fit_update(_recipe(*settings))
        assert planned.update.step_tokens == (4096, 0) and "is not known here" in planned.why
    named = f'run.sft_checkpoint="{CHECKPOINT}"', "model.impl=transformers"
    assert "is not predicted" in fit_update(_recipe(*named)).why


def test_the_plan_says_what_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    _memory_of(monkeypatch, 24)
    plan = memory_plan(_recipe(), ["rl"])
    chosen = document(plan)[0]["chosen"]
    assert lines(plan)[1].startswith(
        f"# rl.update: batch_tokens = 4,096 and graph_tokens = {chosen['rl.update.graph_tokens']:,} (auto): for "
    )


@pytest.mark.parametrize("value", ["some", "-1", "1.5", "true"])
@pytest.mark.parametrize("key", ["batch_tokens", "graph_tokens"])
def test_another_word_than_auto_is_refused_with_what_is_allowed(key: str, value: str) -> None:
    with pytest.raises(RecipeError, match=f'rl.update.{key}: .* is not allowed: it is "auto" or a whole number'):
        _recipe(f"rl.update.{key}={value}")


class RlAttempt:
    """The stage rl of a run's folder, up to the choice of its numbers."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.stage = folder, next(stage for stage in GRAPH if stage.name == "rl")

    def start(self, recipe: Recipe) -> None:
        StageLedger(self.folder / "ledger.jsonl").start("rl", self._settings(recipe), {})

    def tokens(self, recipe: Recipe) -> tuple[int, int]:
        log = EventLog(self.folder / "events.jsonl")
        found = fitted_update(Context(recipe, self.folder, "rl", log))
        log.close()
        return found.step_tokens

    def next_step(self, recipe: Recipe) -> PlanStep:
        ledger, alone = StageLedger(self.folder / "ledger.jsonl"), replace(self.stage, after=())
        return plan((alone,), ledger, lambda _: self._settings(recipe), ["rl"], lambda _: True)[0]

    def _settings(self, recipe: Recipe) -> dict[str, object]:
        return flat_settings(recipe.model_dump(mode="json"), self.stage.reads)


def test_a_resumed_stage_takes_the_numbers_that_it_began_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    attempt, recipe = RlAttempt(tmp_path), _recipe(*LARGE)
    attempt.start(recipe)
    _memory_of(monkeypatch, 24)
    begun = attempt.tokens(recipe)
    assert f"graph_tokens = {begun[1]:,} (auto)" in (tmp_path / "events.jsonl").read_text()
    _memory_of(monkeypatch, 8)
    assert attempt.next_step(recipe).action == "resume" and attempt.tokens(recipe) == begun
    attempt.start(recipe)  # run again, for whatever reason: chosen for this machine
    assert attempt.tokens(recipe) < begun


def test_a_stage_that_began_with_numbers_goes_on_with_them(tmp_path: Path) -> None:
    attempt = RlAttempt(tmp_path)
    attempt.start(_recipe("rl.update.batch_tokens=6144", "rl.update.graph_tokens=16384"))
    assert attempt.next_step(_recipe()).action == "resume" and attempt.tokens(_recipe()) == (6144, 16_384)
    changed = attempt.next_step(_recipe("rl.update.batch_tokens=4096", "rl.update.graph_tokens=16384"))
    assert (changed.action, changed.why) == ("run", "rl.update.batch_tokens was 6144, is 4096")


def test_the_plan_counts_every_engine_here_and_the_states_that_each_follows() -> None:
    one, three = (memory_plan(_recipe(*LARGE, f"rl.engines={count}"), ["rl", "bench"]) for count in (1, 3))
    (rl, bench), (more, same) = one, three
    assert more.engine == 3 * rl.engine and same.engine == bench.engine
    weights = rl.engine - bench.engine
    away = "cluster.address=10.0.0.1:6379"
    assert memory_plan(_recipe(*LARGE, "rl.engines=3", away), ["rl"])[0].engine == rl.engine
    on_gpu = memory_plan(_recipe(*LARGE, "engine.device=cuda"), ["rl"])[0]
    assert on_gpu.published == weights and on_gpu.engine == rl.engine - weights


def test_a_step_counts_the_prompt_that_all_rollouts_share_once_for_each_micro_batch() -> None:
    assert plans._step_tokens(8, 1000, 2000, prefix=0) == 8000
    assert plans._step_tokens(8, 1000, 2000, prefix=600) == 8 * 400 + 3 * 600
    assert plans._step_tokens(8, 1000, 600, prefix=600) == 8000  # a micro-batch has no room for anything else


def test_every_rank_of_the_trainer_on_this_machine_is_counted() -> None:
    (one,) = memory_plan(_recipe("rl.update.batch_tokens=4096", "rl.update.graph_tokens=0"), ["rl"])
    two_ranks = _recipe("rl.update.batch_tokens=4096", "rl.update.graph_tokens=0", "rl.ranks=2")
    (two,) = memory_plan(two_ranks, ["rl"])
    assert two.trainer == 2 * one.trainer and two.engine == one.engine
    (line,) = lines([replace(two, why="")])
    assert f"trainer {two.trainer / 1e9:.1f} GB in 2 ranks and engine" in line
    elsewhere = (
        "rl.update.batch_tokens=4096",
        "rl.update.graph_tokens=0",
        "rl.ranks=2",
        "cluster.address=10.0.0.1:6379",
    )
    (spread,) = memory_plan(_recipe(*elsewhere), ["rl"])
    assert spread.trainer == one.trainer, "of a cluster the plan gives what one machine holds"
