"""One phase of pretraining: next-token prediction on a mixture of documents, real code and exercises alike."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from torch import Tensor

from etude.core.events.log import EventLog
from etude.learn.corpus.mixture import Mixture
from etude.learn.corpus.packing import PackedRows
from etude.learn.model.adapters import add_adapters
from etude.learn.model.causal_lm import CausalLM
from etude.learn.model.lora_settings import LoraSettings
from etude.learn.parallel.shared_training import SharedTraining
from etude.learn.train.batch import BatchSource, TrainBatch
from etude.learn.train.loop import TrainingResult
from etude.learn.train.mtp_settings import MtpSettings
from etude.learn.train.next_token import NextToken
from etude.learn.train.self_distillation import DraftLearner
from etude.learn.train.settings import PhaseSettings
from etude.learn.train.sources import PackedSource, PieceSource
from etude.learn.train.stage import train_stage
from etude.learn.train.watch import TrainingWatch

# Draft layers trained together with next-token prediction, in the stages after their own: one forward of the trunk
# serves both.


class JointLearner(NextToken):
    """On one batch in `every` the draft layers learn too. The trunk ends bit for bit where it would without them.

    Which batches these are follows from their tokens: a resumed run takes the same ones without keeping count.
    """

    def __init__(self, model: CausalLM, router_bias_rate: float, every: int) -> None:
        super().__init__(model, router_bias_rate)
        self.drafts = DraftLearner(model, router_bias_rate)
        self.every = every
        self._drafted = False

    def share(self, shared: SharedTraining) -> None:
        super().share(shared)
        self.drafts.share(shared)

    def loss(self, batch: TrainBatch) -> Tensor:
        """The value is that of the next-token loss alone, by which the loop reports and judges; the graph holds both."""
        out = self.forward(batch)
        main = self.cross_entropy(out, batch)
        self._drafted = batch.checksum % self.every == 0
        if not self._drafted:
            return main
        draft = self.drafts.distil(out.hidden, batch)
        return main + (
            draft - draft.detach()
        )  # adds 0, or NaN if the draft's loss is not finite: then the step is skipped

    def after_step(self) -> dict[str, float]:
        drafts = self.drafts.after_step() if self._drafted else self.drafts.figures
        return super().after_step() | drafts


def learner_of(model: CausalLM, router_bias_rate: float, draft_every: int, lora: LoraSettings) -> NextToken:
    """The objective for the weights of `model` in a stage of next-token prediction, or for the adapters that it gets here: with draft layers they
    are trained at the same time."""
    if lora.rank:
        add_adapters(model, lora)
        router_bias_rate = 0.0  # an adapter holds no router
    if model.config.mtp_layers:
        return JointLearner(model, router_bias_rate, draft_every)
    return NextToken(model, router_bias_rate)


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
    """Trains `model` in place, or the adapters that `settings.lora` adds to it; resumes from `out`. Raises
    ValueError for rows longer than the model's positions.

    Draft layers, if it has any, learn on one batch in `draft_every`.
    """
    if settings.row_tokens > model.config.context_length:
        raise ValueError(
            f"pretrain.{stage}.row_tokens = {settings.row_tokens}, but the checkpoint's positions end at "
            f"{model.config.context_length}: shorten the rows, or stretch it (pretrain.{stage}.yarn_factor)"
        )
    log.note(stage, f"{len(mixture):,} documents, {mixture.total_tokens:,} tokens")
    learner = learner_of(model, settings.router_bias_rate, draft_every, settings.lora)
    source = batches_of(settings, mixture)
    return train_stage(stage, f"pretrain.{stage}", settings, model, model, source, learner, out, log, watches)


def batches_of(settings: PhaseSettings | MtpSettings, mixture: Mixture) -> BatchSource:
    """The batches of a phase or of the MTP stage, endless, from the first on."""
    if settings.packing:
        return PackedSource(PackedRows(mixture, settings.row_tokens), settings.batch_rows)
    return PieceSource(mixture, settings.row_tokens, settings.row_tokens * settings.batch_rows)
