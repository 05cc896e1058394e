"""The base stage: next-token prediction on documents, real code and exercises alike."""

from __future__ import annotations

from pathlib import Path

from etude.corpus.packing import PackedRows
from etude.corpus.shards import TokenShards
from etude.events.log import EventLog
from etude.model.causal_lm import CausalLM
from etude.train.batch import BatchSource
from etude.train.loop import Loop, TrainingResult
from etude.train.next_token import NextToken
from etude.train.optimizer import build_optimizers
from etude.train.settings import PretrainSettings
from etude.train.sources import PackedSource, PieceSource

STAGE = "base"


def run_pretrain(
    settings: PretrainSettings, model: CausalLM, shards: TokenShards, out: Path, log: EventLog
) -> TrainingResult:
    """Trains `model` in place; resumes from `out`."""
    log.note(STAGE, f"{len(shards):,} documents, {shards.total_tokens:,} tokens")
    learner = NextToken(model, settings.router_bias_rate)
    loop = Loop(
        stage=STAGE,
        model=model,
        optimizers=build_optimizers(model, settings.optimizer),
        source=_source(settings, shards),
        loss=learner.loss,
        accepted=learner.accepted,
        settings=settings.loop,
        schedule=settings.schedule,
        out=out,
        log=log,
    )
    return loop.run()


def _source(settings: PretrainSettings, shards: TokenShards) -> BatchSource:
    if settings.packing:
        return PackedSource(PackedRows(shards, settings.row_tokens, settings.seed), settings.batch_rows)
    return PieceSource(shards, settings.row_tokens, settings.row_tokens * settings.batch_rows, settings.seed)
