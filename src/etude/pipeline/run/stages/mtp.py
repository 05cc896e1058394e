"""Stage mtp: new draft layers by self-distillation, behind the checkpoint from the middle of phase short, whose trunk stays bit for bit."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from etude.learn.model.card import Training
from etude.learn.model.causal_lm import CausalLM
from etude.learn.model.checkpoint import check_companions, save_checkpoint
from etude.learn.model.count import count_parameters
from etude.learn.model.init import with_drafts
from etude.learn.train.acceptance import measure_acceptance, tokens_per_pass
from etude.learn.train.pretrain import batches_of
from etude.learn.train.self_distillation import run_mtp
from etude.pipeline.run.stage import Context
from etude.pipeline.run.stages.corpus import HELDOUT
from etude.pipeline.run.stages.loading import load_model
from etude.pipeline.run.stages.pretraining import CHECKPOINT, MIDWAY, mixture_of, shards_in

# Held-out documents of each source whose drafts are counted: some 10,000 tokens in all, an interval of two points in a second.
MEASURED = 50


def run(context: Context) -> None:
    """Leaves `checkpoint/`, the trunk with draft layers, and `summary.json`."""
    settings, start = context.recipe.mtp, _start(context)
    model = with_drafts(load_model(context, start), settings.layers, settings.seed)
    check_companions(model.config, start)
    source = batches_of(settings, mixture_of(context, "short"))
    result = run_mtp(settings, model, source, context.folder, context.log)
    trained = Training(
        context.stage, f"{settings.layers} draft layers, on {result.tokens:,} tokens of the documents of stage short"
    )
    save_checkpoint(model, context.folder / CHECKPOINT, tokenizer_from=start, trained=trained)
    texts = _heldout(context.of("corpus") / HELDOUT, settings.row_tokens)
    context.summarize(
        {
            "layers": settings.layers,
            "parameters": count_parameters(model.config).drafts,
            **asdict(result),
            "acceptance": acceptance(model, texts, context.recipe.harness.temperature),
        }
    )


def acceptance(model: CausalLM, texts: Iterable[np.ndarray], temperature: float) -> dict[str, Any] | None:
    """What the report shows: by depth and position, on the texts' tokens; None without any."""
    drafted = [(ids, np.ones(len(ids), np.bool_)) for ids in texts if len(ids) > model.config.mtp_layers + 1]
    if not drafted:
        return None
    depths = measure_acceptance(model, drafted, temperature)
    return {
        "temperature": temperature,
        "tokens_per_pass": tokens_per_pass(depths, "coupled"),
        "depths": [{"depth": d.depth, **d.rates, "ci95": d.ci95(), "by_position": d.by_position} for d in depths],
    }


def _start(context: Context) -> Path:
    """The middle of phase short; its end, with a notice, if the recipe asks for no middle."""
    midway = context.of("short") / MIDWAY
    if midway.is_dir():
        return midway
    context.log.note(context.stage, "short left no midway checkpoint (pretrain.short.midway): starting from its end")
    return context.of("short") / CHECKPOINT


def _heldout(folder: Path, length: int) -> list[np.ndarray]:
    """The first `length` tokens of held-out files, evenly from all of every source."""
    texts: list[np.ndarray] = []
    for name, shards in shards_in(folder, length).items():
        if name.endswith(".files"):
            numbers = np.linspace(0, len(shards) - 1, min(MEASURED, len(shards))).astype(int)
            texts += [shards.document(int(number))[:length] for number in numbers]
    return texts
