"""Stage mtp: new draft layers behind a checkpoint from the middle of the short phase, by self-distillation on the phase's own mix.

The trunk stays bit for bit. That the layers serve the phase's end as well, and go on from there, is what the middle is for.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

import numpy as np

from etude.corpus.mixture import Mixture
from etude.corpus.packing import PackedRows
from etude.model.causal_lm import CausalLM
from etude.model.checkpoint import load_checkpoint, save_checkpoint
from etude.model.count import count_parameters
from etude.model.init import with_drafts
from etude.run.stage import Context, StageError
from etude.run.stages.corpus import HELDOUT
from etude.run.stages.pretraining import CHECKPOINT, MIDWAY, mixture_of, shards_in
from etude.train.acceptance import measure_acceptance, tokens_per_pass
from etude.train.batch import BatchSource
from etude.train.mtp import run_mtp
from etude.train.mtp_settings import MtpSettings
from etude.train.sources import PackedSource, PieceSource

# Held-out documents of a source whose drafts are counted: an interval of two points in seconds.
MEASURED_DOCUMENTS = 100


def run(context: Context) -> None:
    """Leaves `checkpoint/`, the middle's with draft layers, and `summary.json`."""
    settings, start = context.recipe.mtp, context.of("short") / MIDWAY
    if not start.is_dir():
        raise StageError(
            "pretrain.short.midway is unset, so there is no checkpoint to teach draft layers on: set it, e.g. to 0.5"
        )
    model = with_drafts(load_checkpoint(start), settings.layers, settings.seed)
    mixture = mixture_of(context, "short", settings.row_tokens, settings.seed)
    result = run_mtp(settings, model, source_of(settings, mixture), context.folder, context.log)
    save_checkpoint(model, context.folder / CHECKPOINT, tokenizer_from=start)
    context.summarize(
        {
            "layers": settings.layers,
            "parameters": count_parameters(model.config).drafts,
            **asdict(result),
            "acceptance": acceptance(model, _heldout(context), settings.row_tokens, context.recipe.harness.temperature),
        }
    )


def acceptance(
    model: CausalLM, documents: Iterable[np.ndarray], length: int, temperature: float
) -> dict[str, Any] | None:
    """What the report shows: by depth and position, on the first `length` tokens of each document; None without any."""
    texts = [(ids[:length], np.ones(len(ids[:length]), np.bool_)) for ids in documents]
    drafted = [text for text in texts if len(text[0]) > model.config.mtp_layers + 1]
    if not drafted:
        return None
    depths = measure_acceptance(model, drafted, temperature)
    return {
        "temperature": temperature,
        "tokens_per_pass": tokens_per_pass(depths, "coupled"),
        "depths": [{"depth": d.depth, **d.rates, "ci95": d.ci95(), "by_position": d.by_position} for d in depths],
    }


def source_of(settings: MtpSettings, mixture: Mixture) -> BatchSource:
    """Batches of the phase's documents, as the phase makes them."""
    if settings.packing:
        return PackedSource(PackedRows(mixture, settings.row_tokens), settings.batch_rows)
    return PieceSource(mixture, settings.row_tokens, settings.row_tokens * settings.batch_rows)


def _heldout(context: Context) -> list[np.ndarray]:
    """Held-out files, evenly from every source, so that none fills the measure alone."""
    sources = shards_in(context.of("corpus") / HELDOUT, context.recipe.mtp.row_tokens)
    found: list[np.ndarray] = []
    for shards in (shards for name, shards in sources.items() if name.endswith(".files")):
        numbers = np.linspace(0, len(shards) - 1, min(MEASURED_DOCUMENTS, len(shards))).astype(int)
        found += [shards.document(int(number)) for number in numbers]
    return found
