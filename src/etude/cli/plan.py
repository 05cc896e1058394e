"""`etude plan`: what training a model on a number of GPUs would take."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from etude.cli.answer import Answer
from etude.cli.option import Json, Overrides, Recipes
from etude.cli.settings_command import settings_command
from etude.pipeline.run.stage_plan import (
    EFFICIENCY,
    PlannedTraining,
    TrainedStage,
    named_config,
    planned_training,
    starting_config,
)

if TYPE_CHECKING:
    from etude.learn.plan.accelerators import Accelerator

LISTED = 8  # layouts that a search shows
_Stage = Annotated[TrainedStage, typer.Option("--stage", help="Stage of the recipe.")]
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
    efficiency: _Efficiency = EFFICIENCY,
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
    found = planned.plan(given, accelerator, efficiency)
    return Answer(found.document(tokens, price), found.text(tokens, price), int(bool(found.misfits())))


def _accelerator(name: str) -> Accelerator:
    from etude.learn.plan.accelerators import ACCELERATORS

    if name not in ACCELERATORS:
        raise ValueError(f"--gpu {name!r:.80} is not known; known are {', '.join(ACCELERATORS)}")
    return ACCELERATORS[name]


def _searched(planned: PlannedTraining, given: dict[str, Any], accelerator: Accelerator, efficiency: float) -> Answer:
    from etude.learn.plan.layout_search import LayoutSearch

    if fixed := [f"--{name}" for name in ("replicate", "experts", "context") if given[name] is not None]:
        raise ValueError(f"--search finds {', '.join(fixed)}: leave {'them' if len(fixed) > 1 else 'it'} out")
    gpus = given["gpus"] or planned.how.get("gpus", 1)
    step = planned.step(given | {"replicate": 1, "experts": 1, "context": 1})
    again = given["recompute"] is not None
    found = LayoutSearch(planned.name, planned.config, step, accelerator, efficiency, gpus, again, planned.held)
    plans = found.best(LISTED)
    return Answer(found.document(plans), found.text(plans), int(not plans))


def _planned(
    recipes: list[str] | None, overrides: list[str] | None, stage: TrainedStage, model: str | None, preset: str | None
) -> PlannedTraining:
    from etude.learn.plan.shapes import SHAPES, published_shape

    named = [name for name, value in (("RECIPE", recipes), ("--model", model), ("--preset", preset)) if value]
    if len(named) != 1:
        given = f"{' and '.join(named)} are given" if named else "none is given"
        raise ValueError(f"name one of RECIPE, --model DIR|NAME and --preset ({', '.join(SHAPES)}): {given}")
    if preset is not None:
        return PlannedTraining(preset, published_shape(preset))
    if model is not None:
        return PlannedTraining(model, named_config(model))
    from etude.pipeline.recipe.read import find_recipe, read_recipe

    recipe = read_recipe([find_recipe(name) for name in recipes or []], list(overrides or []))
    return planned_training(recipe, stage, starting_config(recipe))
