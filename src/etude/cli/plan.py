"""`etude plan`: what training a model on a number of GPUs would take."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from pydantic import ValidationError

from etude.cli.answer import Answer
from etude.cli.option import Json, Overrides, Recipes
from etude.cli.settings_command import settings_command

if TYPE_CHECKING:
    from etude.learn.model.config import ModelConfig
    from etude.learn.plan.accelerators import Accelerator
    from etude.learn.plan.cluster_plan import ClusterPlan
    from etude.pipeline.recipe.recipe import Recipe

LISTED = 8  # layouts that a search shows
Stage = Literal["base", "short", "long", "sft"]


@dataclass(frozen=True)
class Planned:
    """A model, and how a stage of a recipe trains it; `how`: of these, what the recipe says."""

    name: str
    config: ModelConfig
    how: dict[str, Any]

    def with_options(self, given: dict[str, Any]) -> dict[str, Any]:
        """`how`, but for what options say; None: nothing."""
        return self.how | {key: value for key, value in given.items() if value is not None}


_Stage = Annotated[Stage, typer.Option("--stage", help="Stage of the recipe.")]
_Model = Annotated[
    str | None,
    typer.Option("--model", metavar="DIR|NAME", help="A checkpoint directory, a hub name, or smollm2-135m."),
]
_Preset = Annotated[
    str | None, typer.Option("--preset", metavar="NAME", help="A published shape: kimi-k2.5, qwen3-30b-a3b, ...")
]
_Gpus = Annotated[
    int | None, typer.Option("--gpus", min=1, metavar="N", help="Number of GPUs, a rank on each. Default: 1.")
]
_Seq = Annotated[int | None, typer.Option("--seq", min=1, metavar="TOKENS", help="Length of a row. Default: 8192.")]
_Rows = Annotated[
    int | None, typer.Option("--rows", min=1, help="Rows of each group of context ranks in a step. Default: 1.")
]
_Replicate = Annotated[int | None, typer.Option("--replicate", min=1, help="Copies of the parameters. Default: 1.")]
_Experts = Annotated[
    int | None, typer.Option("--experts", min=1, help="Ranks that divide a layer's experts. Default: 1.")
]
_Context = Annotated[
    int | None, typer.Option("--context", min=1, help="Ranks that share the tokens of a row. Default: 1.")
]
_Compute = Annotated[Literal["fp32", "bf16"] | None, typer.Option("--compute", help="Type of products. Default: bf16.")]
_Recompute = Annotated[
    bool | None,
    typer.Option("--recompute/--no-recompute", help="Compute each block again for its gradients. Default: yes."),
]
_LoraRank = Annotated[
    int | None, typer.Option("--lora-rank", min=0, help="Rank of adapters. Default: 0, all weights are trained.")
]
_Search = Annotated[
    bool, typer.Option("--search", help="List the layouts that fit instead, fastest first, without recording any.")
]
_Gpu = Annotated[str, typer.Option("--gpu", metavar="NAME", help="Kind of GPU: a100-80gb, h100, h200, b200.")]
_Efficiency = Annotated[
    float, typer.Option("--efficiency", min=0.01, max=1, help="Share of the GPU's peak that products reach.")
]
_Tokens = Annotated[
    float | None, typer.Option("--tokens", min=1, metavar="N", help="Tokens of the whole training, such as 50e9.")
]
_Price = Annotated[
    float | None, typer.Option("--price", min=0, metavar="X", help="Price of a GPU for an hour; needs --tokens.")
]


PlanCommand = settings_command("--model", "--preset", "--gpus", "--seq", "--experts", "--context", "--search", "--gpu")


def plan(
    recipes: Recipes = None,
    overrides: Overrides = None,
    stage: _Stage = "sft",
    model: _Model = None,
    preset: _Preset = None,
    gpus: _Gpus = None,
    seq: _Seq = None,
    rows: _Rows = None,
    replicate: _Replicate = None,
    experts: _Experts = None,
    context: _Context = None,
    compute: _Compute = None,
    recompute: _Recompute = None,
    lora_rank: _LoraRank = None,
    search: _Search = False,
    gpu: _Gpu = "h100",
    efficiency: _Efficiency = 0.4,
    tokens: _Tokens = None,
    price: _Price = None,
    json: Json = False,
) -> Answer:
    """State what training on N GPUs would take, without any: memory by part, bytes by collective, time; exit 1 if it does not fit.

    Of a recipe's stage, a checkpoint or a published shape. Options replace what the recipe says.
    """
    if price is not None and tokens is None:
        raise ValueError(f"--price {price} needs --tokens, the length of the training")
    given: dict[str, Any] = {
        "gpus": gpus, "seq": seq, "rows": rows, "replicate": replicate, "experts": experts, "context": context,
        "compute": compute, "recompute": recompute, "lora_rank": lora_rank,
    }  # fmt: skip
    accelerator, planned = _accelerator(gpu), _planned(recipes, overrides, stage, model, preset)
    if search:
        return _searched(planned, given, accelerator, efficiency)
    found = _cluster_plan(planned, given, accelerator, efficiency)
    return Answer(found.document(tokens, price), found.text(tokens, price), int(bool(found.misfits())))


def _accelerator(name: str) -> Accelerator:
    from etude.learn.plan.accelerators import ACCELERATORS

    if name not in ACCELERATORS:
        raise ValueError(f"--gpu {name!r:.80} is not known; known are {', '.join(ACCELERATORS)}")
    return ACCELERATORS[name]


def _cluster_plan(planned: Planned, given: dict[str, Any], accelerator: Accelerator, efficiency: float) -> ClusterPlan:
    from etude.learn.plan.cluster_plan import ClusterPlan

    step = _step(planned.config, planned.with_options(given))
    return ClusterPlan(planned.name, planned.config, step, accelerator, efficiency)


def _searched(planned: Planned, given: dict[str, Any], accelerator: Accelerator, efficiency: float) -> Answer:
    from etude.learn.plan.layout_search import LayoutSearch

    if fixed := [f"--{name}" for name in ("replicate", "experts", "context") if given[name] is not None]:
        raise ValueError(f"--search finds {', '.join(fixed)}: leave {'them' if len(fixed) > 1 else 'it'} out")
    how = planned.with_options(given)
    step = _step(planned.config, how | {"replicate": 1, "experts": 1, "context": 1})
    again = given["recompute"] is not None
    found = LayoutSearch(planned.name, planned.config, step, accelerator, efficiency, how.get("gpus", 1), again)
    plans = found.best(LISTED)
    return Answer(found.document(plans), found.text(plans), int(not plans))


def _step(config: ModelConfig, how: dict[str, Any]) -> Any:
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
    return PlannedStep(layout, how.get("rows", 1), how.get("seq", 8192), compute, recompute, adapters)


def _planned(
    recipes: list[str] | None, overrides: list[str] | None, stage: Stage, model: str | None, preset: str | None
) -> Planned:
    from etude.learn.plan.shapes import SHAPES, published_shape

    named = [name for name, value in (("RECIPE", recipes), ("--model", model), ("--preset", preset)) if value]
    if len(named) != 1:
        given = f"{' and '.join(named)} are given" if named else "none is given"
        raise ValueError(f"name one of RECIPE, --model DIR|NAME and --preset ({', '.join(SHAPES)}): {given}")
    if preset is not None:
        return Planned(preset, published_shape(preset), {})
    if model is not None:
        return Planned(model, _config(model), {})
    from etude.pipeline.recipe.read import find_recipe, read_recipe

    recipe = read_recipe([find_recipe(name) for name in recipes or []], list(overrides or []))
    return _of_recipe(recipe, stage)


def _of_recipe(recipe: Recipe, stage: Stage) -> Planned:
    from etude.learn.model.config import ModelConfig

    start = str(recipe.run.sft_checkpoint or recipe.model.init)
    config = _config(start) if start else ModelConfig.from_settings(recipe.model, recipe.corpus.vocabulary_size)
    settings: Any = recipe.sft if stage == "sft" else getattr(recipe.pretrain, stage)
    loop = settings.loop
    groups = loop.parallel.ranks // loop.parallel.context
    if stage == "sft":
        seq = min(settings.batch_tokens, recipe.engine.max_len, config.context_length)
        rows = settings.batch_tokens // seq
    else:
        seq, rows = settings.row_tokens, settings.batch_rows
    how = {
        "gpus": loop.parallel.ranks, "replicate": loop.parallel.replicate, "experts": loop.parallel.experts,
        "context": loop.parallel.context, "seq": seq, "rows": -(-rows // groups), "compute": loop.compute,
        "recompute": loop.recompute, "lora_rank": settings.lora.rank, "lora": settings.lora,
    }  # fmt: skip
    return Planned(f"{recipe.run.name}, {stage}", config, how)


def _config(name: str) -> ModelConfig:
    """Of a checkpoint, whose weights are not downloaded."""
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
