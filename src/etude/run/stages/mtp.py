"""Stage mtp: new draft layers for a checkpoint, by self-distillation on the run's own corpus; the trunk stays bit for bit."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from etude.corpus.packing import PackedRows
from etude.corpus.shards import TokenShards
from etude.model.causal_lm import CausalLM
from etude.model.checkpoint import load_checkpoint, save_checkpoint
from etude.model.count import count_parameters
from etude.model.init import with_drafts
from etude.run.stage import Context
from etude.run.stages.base import CHECKPOINT
from etude.run.stages.corpus import HELDOUT, TRAIN
from etude.train.acceptance import measure_acceptance, tokens_per_pass
from etude.train.batch import BatchSource
from etude.train.mtp import run_mtp
from etude.train.mtp_settings import MtpSettings
from etude.train.sources import PackedSource, PieceSource

# Held-out documents whose drafts are counted: some 10,000 tokens, an interval of two points in a second.
MEASURED_DOCUMENTS = 100


def run(context: Context) -> None:
    """Leaves `checkpoint/`, the base's with draft layers, and `summary.json`."""
    corpus = context.of("corpus")
    facts = json.loads((corpus / "summary.json").read_text())
    heldout = _documents(corpus / HELDOUT) if facts["heldout_documents"] else []
    source = source_of(context.recipe.mtp, TokenShards(corpus / TRAIN))
    distil(context, context.of("base") / CHECKPOINT, source, heldout)


def distil(context: Context, start: Path, source: BatchSource, heldout: Iterable[np.ndarray]) -> None:
    """Draft layers behind the checkpoint `start`, taught on `source`; `heldout` documents, whole, say how well they do."""
    settings = context.recipe.mtp
    model = with_drafts(load_checkpoint(start), settings.layers, settings.seed)
    result = run_mtp(settings, model, source, context.folder, context.log)
    save_checkpoint(model, context.folder / CHECKPOINT, tokenizer_from=start)
    context.summarize(
        {
            "layers": settings.layers,
            "parameters": count_parameters(model.config).drafts,
            **asdict(result),
            "acceptance": acceptance(model, heldout, settings.row_tokens, context.recipe.harness.temperature),
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


def source_of(settings: MtpSettings, shards: TokenShards) -> BatchSource:
    """Batches of the corpus, as the base stage makes them."""
    if settings.packing:
        return PackedSource(PackedRows(shards, settings.row_tokens, settings.seed), settings.batch_rows)
    return PieceSource(shards, settings.row_tokens, settings.row_tokens * settings.batch_rows, settings.seed)


def _documents(folder: Path) -> list[np.ndarray]:
    """Evenly from all of the folder, so that no source fills the measure alone."""
    shards = TokenShards(folder)
    numbers = np.linspace(0, len(shards) - 1, min(MEASURED_DOCUMENTS, len(shards))).astype(int)
    return [shards.document(int(number)) for number in numbers]
