"""Stage sft: supervised fine-tuning of the base on the sessions; and its first control, on the competent ones alone."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from etude.factory.sessions import read_sessions
from etude.model.checkpoint import load_checkpoint, save_checkpoint
from etude.run.stage import Context
from etude.run.stages.pretraining import CHECKPOINT
from etude.trace.segment import Segment
from etude.train.sft import run_sft


def run(context: Context) -> None:
    """Leaves `checkpoint/` and `summary.json`."""
    collected = json.loads((context.of("sessions") / "summary.json").read_text())
    _fine_tune(context, segments(context.of("sessions")), collected)


def run_competent(context: Context) -> None:
    """The same number of steps on the demonstrations of good judgement alone: what a better teacher would have been worth."""
    _fine_tune(context, segments(context.of("sessions"), competent_only=True), {})


def segments(folder: Path, *, competent_only: bool = False) -> list[Segment]:
    """All segments of the sessions in a folder."""
    return [s for session in read_sessions(folder, competent_only=competent_only) for s in session.segments()]


def _fine_tune(context: Context, taught: list[Segment], facts: dict) -> None:
    base = context.of("long") / CHECKPOINT
    model = load_checkpoint(base)
    result = run_sft(context.recipe.sft, model, taught, context.folder, context.log, stage=context.stage)
    save_checkpoint(model, context.folder / CHECKPOINT, tokenizer_from=base)
    sampled = int(sum(segment.sampled.sum() for segment in taught))
    context.summarize({**facts, "segments": len(taught), "sampled_tokens": sampled, **asdict(result)})
