"""How the stages of a recipe train, as a plan of GPUs needs it: the model, the layout of the ranks, and the tokens of a step."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from etude.learn.model.config import ModelConfig
    from etude.learn.plan.accelerators import Accelerator
    from etude.learn.plan.cluster_plan import ClusterPlan
    from etude.learn.plan.exchanges import PlannedStep
    from etude.pipeline.recipe.recipe import Recipe

TrainedStage = Literal["base", "short", "long", "sft", "rl"]
TRAINED: tuple[TrainedStage, ...] = ("base", "short", "long", "sft", "rl")
EFFICIENCY = 0.4  # share of a GPU's peak that products reach, where nothing else is said


@dataclass(frozen=True)
class PlannedTraining:
    """A model, and how a stage of a recipe trains it. `how`: of the numbers of a step those that the recipe says; `held`: what `ClusterPlan` calls
    `reference` and `published`."""

    name: str
    config: ModelConfig
    how: dict[str, Any] = field(default_factory=dict)
    held: dict[str, Any] = field(default_factory=dict)

    def step(self, given: dict[str, Any]) -> PlannedStep:
        """`given` replaces what the recipe says; None: nothing. Raises ValueError for a layout that the model can't have."""
        return _step(self.config, self.how | {key: value for key, value in given.items() if value is not None})

    def plan(self, given: dict[str, Any], accelerator: Accelerator, efficiency: float) -> ClusterPlan:
        """With the exchanges of a recorded step."""
        from etude.learn.plan.cluster_plan import ClusterPlan

        return ClusterPlan(self.name, self.config, self.step(given), accelerator, efficiency, **self.held)


def planned_training(recipe: Recipe, stage: TrainedStage, config: ModelConfig) -> PlannedTraining:
    """Of a model of this `config`, which the stage starts from."""
    name = f"{recipe.run.name}, {stage}"
    if stage == "rl":
        return _reinforcement(name, recipe, config)
    settings: Any = recipe.sft if stage == "sft" else getattr(recipe.pretrain, stage)
    if stage == "sft":
        seq = min(settings.batch_tokens, recipe.engine.max_len, config.context_length)
        rows = settings.batch_tokens // seq
    else:
        seq, rows = settings.row_tokens, settings.batch_rows
    groups = settings.loop.parallel.ranks // settings.loop.parallel.context
    return PlannedTraining(name, config, _how(settings.loop, settings.lora, seq, -(-rows // groups)))


def _reinforcement(name: str, recipe: Recipe, config: ModelConfig) -> PlannedTraining:
    """A step whose rollouts fill their windows, in micro-batches of `batch_tokens` as the recipe has them, or of what no memory is known for."""
    from etude.pipeline.run.memory_plan import PUBLISHED_STATES

    rl = recipe.rl
    batch = rl.update.step_tokens[0]
    window = min(config.context_length, recipe.engine.max_len)
    seq = min(window, batch)
    rows = max(1, batch // seq)
    groups = max(rl.ranks, rl.parallel.ranks) // rl.parallel.context
    batches = -(-rl.groups_per_step * rl.group_size * window // (groups * rows * seq))
    how = _how(rl, rl.update.lora, seq, rows) | {"compute": rl.update.compute, "recompute": rl.update.recompute}
    held = {"reference": rl.kl_beta > 0, "published": PUBLISHED_STATES}
    return PlannedTraining(name, config, how | {"batches": batches, "scored": True}, held)


def _how(parted: Any, lora: Any, seq: int, rows: int) -> dict[str, Any]:
    """`parted`: settings with a layout."""
    layout = parted.parallel
    return {
        "gpus": layout.ranks, "replicate": layout.replicate, "experts": layout.experts, "context": layout.context, "seq": seq, "rows": rows,
        "compute": getattr(parted, "compute", "fp32"), "recompute": getattr(parted, "recompute", False), "lora_rank": lora.rank, "lora": lora,
    }  # fmt: skip


def _step(config: ModelConfig, how: dict[str, Any]) -> PlannedStep:
    from pydantic import ValidationError

    from etude.learn.model.lora_settings import LoraSettings
    from etude.learn.parallel.layout import ParallelLayout
    from etude.learn.plan.exchanges import PlannedStep

    gpus, replicate, compute = how.get("gpus", 1), how.get("replicate", 1), how.get("compute", "bf16")
    if gpus % replicate:
        raise ValueError(f"--replicate {replicate} does not divide --gpus {gpus}")
    shape = {"replicate": replicate, "shard": gpus // replicate}
    try:
        layout = ParallelLayout(**shape, experts=how.get("experts", 1), context=how.get("context", 1))
    except ValidationError as error:
        raise ValueError(error.errors()[0]["msg"].removeprefix("Value error, ")) from error
    layout.require_experts(config.experts)
    rank = how.get("lora_rank", 0)
    lora = how.get("lora") or LoraSettings(base=compute)
    adapters = lora.model_copy(update={"rank": rank}) if rank else None
    recompute = how.get("recompute", True)
    more = {name: how[name] for name in ("batches", "scored") if name in how}
    return PlannedStep(layout, how.get("rows", 1), how.get("seq", 8192), compute, recompute, adapters, **more)


def starting_config(recipe: Recipe) -> ModelConfig:
    """Of the checkpoint that the recipe begins with, or of its new model."""
    from etude.learn.model.config import ModelConfig

    start = str(recipe.run.sft_checkpoint or recipe.model.init)
    return named_config(start) if start else ModelConfig.from_settings(recipe.model, recipe.corpus.vocabulary_size)


def named_config(name: str) -> ModelConfig:
    """Of a checkpoint's directory, a hub's name or a published model, whose weights are not downloaded."""
    from etude.learn.model.hf_config import read_config
    from etude.learn.model.named_checkpoint import named_folder
    from etude.learn.model.published_models import PUBLISHED_MODELS
    from etude.learn.weights.hub_fetch import fetch_from_hub

    folder = Path(name)
    if name in PUBLISHED_MODELS:
        folder = named_folder(name)
    elif not folder.is_dir():
        folder = fetch_from_hub(name, dry_run=True).folder
    return read_config(folder)


def split_stages(recipe: Recipe, selected: Collection[str]) -> list[TrainedStage]:
    """Those of the selected stages whose ranks hold a part of the model each, on GPUs."""
    found: list[TrainedStage] = []
    for stage in TRAINED:
        settings: Any = (
            recipe.rl if stage == "rl" else recipe.sft.loop if stage == "sft" else getattr(recipe.pretrain, stage).loop
        )
        if stage in selected and settings.parallel.ranks > 1 and settings.device == "cuda":
            found.append(stage)
    return found


def gpu_plans(recipe: Recipe, selected: Collection[str]) -> tuple[list[dict[str, Any]], list[str]]:
    """What each of `split_stages` would take of every kind of GPU, as --json has it and in lines. Exchanges are calculated and not recorded."""
    from etude.learn.plan.accelerators import ACCELERATORS
    from etude.learn.plan.expected_traffic import ModelUnits
    from etude.learn.plan.layout_search import ExpectedPlan

    documents: list[dict[str, Any]] = []
    lines: list[str] = []
    for stage in split_stages(recipe, selected):
        planned = planned_training(recipe, stage, starting_config(recipe))
        step = planned.step({})
        more: dict[str, Any] = planned.held | {"units": ModelUnits.of_step(planned.config, step)}
        plans = {
            name: ExpectedPlan(planned.name, planned.config, step, kind, EFFICIENCY, **more)
            for name, kind in ACCELERATORS.items()
        }
        fitting = {name: plan for name, plan in plans.items() if not plan.misfits()}
        documents.append(
            {"stage": stage, "fits": list(fitting)} | {name: plan.document(None, None) for name, plan in plans.items()}
        )
        lines.append(
            f"# plan of {stage}: {_summary(fitting or plans, bool(fitting))}; in full: etude plan RECIPE --stage {stage}"
        )
    return documents, lines


def _summary(plans: dict[str, Any], fits: bool) -> str:
    name, plan = next(iter(plans.items()))
    ranks = plan.step.layout.ranks
    gpus = f"{ranks} GPUs ({', '.join(plans)})" if fits else f"more than {ranks} GPUs of any known kind have"
    return f"{gpus}: {plan.brief()} on {name}, not measured"
