"""The MTP stage: new draft layers learn by self-distillation behind a trunk that stays as it is, bit for bit."""

from __future__ import annotations

from pathlib import Path

from etude.core.events.log import EventLog
from etude.learn.model.causal_lm import CausalLM
from etude.learn.train.batch import BatchSource
from etude.learn.train.loop import TrainingResult, train_stage
from etude.learn.train.mtp_settings import MtpSettings
from etude.learn.train.self_distillation import DraftLearner

STAGE = "mtp"


def run_mtp(settings: MtpSettings, model: CausalLM, source: BatchSource, out: Path, log: EventLog) -> TrainingResult:
    """Trains the draft layers of `model` in place; resumes from `out`. Raises ValueError if it has none.

    The trunk is no part of the optimizer and runs without a graph. Batches are those of pretraining.
    """
    learner = DraftLearner(model, settings.router_bias_rate)
    return train_stage(STAGE, STAGE, settings, model, model.mtp, source, learner, out, log)
