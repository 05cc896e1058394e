"""`etude plan`: what training a model on a number of GPUs would take."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from etude.cli.answer import Answer
from etude.cli.option import Json

if TYPE_CHECKING:
    from etude.learn.model.config import ModelConfig


def plan(
    gpus: Annotated[int, typer.Option("--gpus", min=1, metavar="N", help="Number of GPUs, a rank on each.")],
    seq: Annotated[int, typer.Option("--seq", min=1, metavar="TOKENS", help="Length of a row.")] = 8192,
    model: Annotated[
        str | None,
        typer.Option("--model", metavar="DIR|NAME", help="A checkpoint directory, or a hub name (owner/name)."),
    ] = None,
    preset: Annotated[
        str | None, typer.Option("--preset", metavar="NAME", help="A published shape: kimi-k2.5, qwen3-30b-a3b, ...")
    ] = None,
    rows: Annotated[int, typer.Option("--rows", min=1, help="Rows of each group of context ranks in a step.")] = 1,
    replicate: Annotated[int, typer.Option("--replicate", min=1, help="Copies of the parameters.")] = 1,
    experts: Annotated[int, typer.Option("--experts", min=1, help="Ranks that divide a layer's experts.")] = 1,
    context: Annotated[int, typer.Option("--context", min=1, help="Ranks that share the tokens of a row.")] = 1,
    compute: Annotated[Literal["fp32", "bf16"], typer.Option(help="Type of products.")] = "bf16",
    recompute: Annotated[
        bool, typer.Option("--recompute/--no-recompute", help="Compute each block again for its gradients.")
    ] = True,
    lora_rank: Annotated[int, typer.Option("--lora-rank", min=0, help="Rank of adapters; 0 trains all weights.")] = 0,
    gpu: Annotated[
        str, typer.Option("--gpu", metavar="NAME", help="Kind of GPU: a100-80gb, h100, h200, b200.")
    ] = "h100",
    efficiency: Annotated[
        float, typer.Option("--efficiency", min=0.01, max=1, help="Share of the GPU's peak that products reach.")
    ] = 0.4,
    tokens: Annotated[
        float | None, typer.Option("--tokens", metavar="N", help="Tokens of the whole training, such as 50e9.")
    ] = None,
    price: Annotated[
        float | None, typer.Option("--price", metavar="X", help="Price of a GPU for an hour; needs --tokens.")
    ] = None,
    json: Json = False,
) -> Answer:
    """State what training on N GPUs would take, without any: memory by part, bytes by collective, time; exit 1 if it does not fit."""
    from etude.learn.model.lora_settings import LoraSettings
    from etude.learn.parallel.layout import ParallelLayout
    from etude.learn.plan.accelerators import ACCELERATORS
    from etude.learn.plan.cluster_plan import ClusterPlan
    from etude.learn.plan.exchanges import PlannedStep

    if gpu not in ACCELERATORS:
        raise ValueError(f"--gpu {gpu!r:.80} is not known; known are {', '.join(ACCELERATORS)}")
    if price is not None and tokens is None:
        raise ValueError(f"--price {price} needs --tokens, the length of the training")
    name, config = _model(model, preset)
    if gpus % replicate:
        raise ValueError(f"--replicate {replicate} does not divide --gpus {gpus}")
    layout = ParallelLayout(replicate=replicate, shard=gpus // replicate, experts=experts, context=context)
    layout.require_experts(config.experts)
    lora = LoraSettings(rank=lora_rank, base=compute) if lora_rank else None
    step = PlannedStep(layout, rows, seq, compute, recompute, lora)
    found = ClusterPlan(name, config, step, ACCELERATORS[gpu], efficiency)
    return Answer(found.document(tokens, price), found.text(tokens, price), int(bool(found.misfits())))


def _model(model: str | None, preset: str | None) -> tuple[str, ModelConfig]:
    from etude.learn.model.hf_config import read_config
    from etude.learn.plan.shapes import SHAPES, published_shape
    from etude.learn.weights.hub_fetch import fetch_from_hub

    if (model is None) == (preset is None):
        raise ValueError(f"name one model: --preset ({', '.join(SHAPES)}) or --model DIR|NAME")
    if preset is not None:
        return preset, published_shape(preset)
    folder = Path(str(model))
    if not folder.is_dir():
        folder = fetch_from_hub(str(model), None, None, dry_run=True).folder  # config and tokenizer alone
    return str(model), read_config(folder)
