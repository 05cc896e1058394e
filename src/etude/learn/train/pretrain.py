"""One phase of pretraining: next-token prediction on a mixture of documents, real code and exercises alike."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from etude.core.events.log import EventLog
from etude.learn.corpus.mixture import Mixture
from etude.learn.corpus.packing import PackedRows
from etude.learn.model.causal_lm import CausalLM
from etude.learn.train.batch import BatchSource
from etude.learn.train.joint import learner_of
from etude.learn.train.loop import TrainingResult, trained
from etude.learn.train.mtp_settings import MtpSettings
from etude.learn.train.settings import PhaseSettings
from etude.learn.train.sources import PackedSource, PieceSource
from etude.learn.train.watch import TrainingWatch


def run_pretrain(
    stage: str,
    settings: PhaseSettings,
    model: CausalLM,
    mixture: Mixture,
    out: Path,
    log: EventLog,
    watches: Sequence[TrainingWatch] = (),
    draft_every: int = 1,
) -> TrainingResult:
    """Trains `model` in place; resumes from `out`. Raises ValueError for rows longer than the model's positions.

    Draft layers, if it has any, learn on one batch in `draft_every`.
    """
    if settings.row_tokens > model.config.context_length:
        raise ValueError(
            f"pretrain.{stage}.row_tokens = {settings.row_tokens}, but the checkpoint's positions end at "
            f"{model.config.context_length}: shorten the rows, or stretch it (pretrain.{stage}.yarn_factor)"
        )
    log.note(stage, f"{len(mixture):,} documents, {mixture.total_tokens:,} tokens")
    learner = learner_of(model, settings.router_bias_rate, draft_every)
    source = batches_of(settings, mixture)
    return trained(stage, f"pretrain.{stage}", settings, model, model, source, learner, out, log, watches)


def batches_of(settings: PhaseSettings | MtpSettings, mixture: Mixture) -> BatchSource:
    """The batches of a phase or of the MTP stage, endless, from the first on."""
    if settings.packing:
        return PackedSource(PackedRows(mixture, settings.row_tokens), settings.batch_rows)
    return PieceSource(mixture, settings.row_tokens, settings.row_tokens * settings.batch_rows)
