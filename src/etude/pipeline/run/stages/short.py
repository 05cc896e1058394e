"""Stage short: the base goes on with short documents, real code above all."""

from __future__ import annotations

from dataclasses import asdict

from etude.pipeline.run.stage import Context
from etude.pipeline.run.stages.loading import load_model
from etude.pipeline.run.stages.pretraining import CHECKPOINT, leave, train_phase


def run(context: Context) -> None:
    """Leaves `checkpoint/`, `midway/` (from the middle of the phase) and `summary.json`."""
    base = context.of("base") / CHECKPOINT
    model = load_model(context, base)
    result = train_phase(context, model, base)
    leave(context, model, base, asdict(result))
