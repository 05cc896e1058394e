"""The base stage: next-token prediction on packed documents, real code and exercises alike."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from etude.corpus.packing import PackedRows
from etude.corpus.shards import DONE_FILE, TokenShards, write_shards
from etude.events.log import EventLog
from etude.model.causal_lm import CausalLM
from etude.train.loop import Loop, TrainingResult
from etude.train.next_token import NextToken
from etude.train.optimizer import build_optimizers
from etude.train.settings import PretrainSettings
from etude.train.sources import PackedSource

STAGE = "base"


def run_pretrain(
    settings: PretrainSettings, model: CausalLM, documents: Iterable[Sequence[int]], out: Path, log: EventLog
) -> TrainingResult:
    """Trains `model` in place; resumes from `out`. `documents` are token ids, read only if `out/shards` is unfinished."""
    folder = out / "shards"
    shards = TokenShards(folder) if (folder / DONE_FILE).is_file() else write_shards(folder, documents)
    log.note(STAGE, f"{len(shards):,} documents, {shards.total_tokens:,} tokens")
    learner = NextToken(model, settings.router_bias_rate)
    loop = Loop(
        stage=STAGE,
        model=model,
        optimizers=build_optimizers(model, settings.optimizer),
        source=PackedSource(PackedRows(shards, settings.row_tokens, settings.seed), settings.batch_rows),
        loss=learner.loss,
        accepted=learner.accepted,
        settings=settings.loop,
        schedule=settings.schedule,
        out=out,
        log=log,
    )
    return loop.run()
