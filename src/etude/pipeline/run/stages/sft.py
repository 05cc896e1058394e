"""Stage sft: supervised fine-tuning on the sessions, draft layers together with the trunk; and its first control, on the competent ones alone.

The control has the same trunk to start from and no draft layers, which change nothing in it. The last sessions
(`sft.heldout_share`) are taught to neither: losses and drafts are measured on them.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from itertools import islice
from pathlib import Path

from etude.agent.chat.load import load_renderer
from etude.core.trace.segment import Segment
from etude.learn.model.card import Training
from etude.learn.model.checkpoint import check_companions, load_checkpoint, save_checkpoint
from etude.learn.train.learnable import fit_segments
from etude.learn.train.session_loss import session_loss
from etude.learn.train.sft import run_sft
from etude.pipeline.run.stage import Context
from etude.pipeline.run.stages.pretraining import CHECKPOINT, pretrained_checkpoint
from etude.rollout.collect.taught import taught
from etude.rollout.scripted_sessions import read_sessions


def run(context: Context) -> None:
    """Leaves `checkpoint/` and `summary.json`."""
    collected = json.loads((context.of("sessions") / "summary.json").read_text())
    _fine_tune(context, [*taught_segments(context), *collected_segments(context)], collected, drafts=True)


def run_competent(context: Context) -> None:
    """The same number of steps on the demonstrations of good judgement alone: what a better teacher would have been worth."""
    _fine_tune(context, taught_segments(context, competent_only=True), {}, drafts=False)


def taught_segments(context: Context, *, competent_only: bool = False) -> list[Segment]:
    """All segments of the sessions that are not held out."""
    sessions = islice(read_sessions(context.of("sessions")), _taught(context))
    return [
        segment
        for session in sessions
        if session.header.recipe["competent"] or not competent_only
        for segment in session.segments()
    ]


def collected_segments(context: Context) -> list[Segment]:
    """Of the folders that the recipe names, in their order; rendered for the model that learns from them."""
    folders = context.recipe.sft.collected
    renderer = load_renderer(pretrained_checkpoint(context)) if folders else None
    return [segment for folder in folders if renderer for segment in taught(Path(folder), renderer)]


def held_segments(context: Context) -> list[Segment]:
    """All segments of the sessions that no stage learns from."""
    sessions = read_sessions(context.of("sessions"), first=_taught(context))
    return [segment for session in sessions for segment in session.segments()]


def _taught(context: Context) -> int:
    collected = json.loads((context.of("sessions") / "summary.json").read_text())
    return collected["sessions"] - round(collected["sessions"] * context.recipe.sft.heldout_share)


def _fine_tune(context: Context, taught: list[Segment], facts: dict, *, drafts: bool) -> None:
    recipe, start = context.recipe, pretrained_checkpoint(context)
    model = load_checkpoint(start, drafts=drafts)
    check_companions(model.config, start)
    held = fit_segments(
        held_segments(context),
        model.config.context_length,
        recipe.sft.too_long,
        lambda line: context.log.note(context.stage, line),
        "held-out segment",
    )
    result = run_sft(
        recipe.sft, model, taught, context.folder, context.log, stage=context.stage, draft_every=recipe.mtp.every
    )
    folders = ", ".join(Path(folder).name for folder in recipe.sft.collected)
    data = f"{len(taught):,} segments of the run's sessions" + (
        f" and of collected ones ({folders})" if folders else ""
    )
    save_checkpoint(model, context.folder / CHECKPOINT, tokenizer_from=start, trained=Training(context.stage, data))
    sampled = int(sum(segment.sampled.sum() for segment in taught))
    measured = {"heldout_segments": len(held), "heldout_loss": session_loss(model, held)}
    context.summarize({**facts, "segments": len(taught), "sampled_tokens": sampled, **asdict(result), **measured})
