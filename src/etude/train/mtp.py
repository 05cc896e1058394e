"""The MTP stage: new draft layers learn by self-distillation behind a trunk that stays as it is, bit for bit."""

from __future__ import annotations

from pathlib import Path

from etude.events.log import EventLog
from etude.model.causal_lm import CausalLM
from etude.model.device import moved
from etude.train.batch import BatchSource
from etude.train.loop import Loop, TrainingResult
from etude.train.mtp_settings import MtpSettings
from etude.train.optimizer import build_optimizers
from etude.train.self_distillation import DraftLearner

STAGE = "mtp"


def run_mtp(settings: MtpSettings, model: CausalLM, source: BatchSource, out: Path, log: EventLog) -> TrainingResult:
    """Trains the draft layers of `model` in place; resumes from `out`. Raises ValueError if it has none.

    The trunk is no part of the optimizer and runs without a graph. Batches are those of pretraining.
    """
    with moved(model, settings.loop.device, f"{STAGE}.loop.device"):
        learner = DraftLearner(model, settings.router_bias_rate)
        loop = Loop(
            stage=STAGE,
            model=model,
            optimizers=build_optimizers(model.mtp, settings.optimizer),
            source=source,
            loss=learner.loss,
            accepted=learner.accepted,
            settings=settings.loop,
            schedule=settings.schedule,
            out=out,
            log=log,
        )
        return loop.run()
