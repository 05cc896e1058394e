"""Stage sft: supervised fine-tuning on the sessions, draft layers together with the trunk; and its first control, on the competent ones alone.

The control has the same trunk to start from and no draft layers, which change nothing in it. Neither learns from the last sessions
(`sft.heldout_share`): losses and drafts are measured on them. A recipe without the stage sessions learns from collected ones alone.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

from etude.agent.chat.load import load_renderer
from etude.agent.harness.presets.preset import preset_of
from etude.core.trace.segment import Segment
from etude.learn.model.adapter_files import save_adapter
from etude.learn.model.card import Training
from etude.learn.model.checkpoint import check_companions, save_checkpoint
from etude.learn.train.learnable import fit_segments
from etude.learn.train.session_loss import session_loss
from etude.learn.train.sft import run_sft
from etude.learn.weights.adapter_folder import ADAPTER
from etude.pipeline.run.stage import Context
from etude.pipeline.run.stages.loading import load_model
from etude.pipeline.run.stages.pretraining import CHECKPOINT, pretrained_checkpoint
from etude.rollout.collect.offered_tools import other_tools
from etude.rollout.collect.taught import taught
from etude.rollout.scripted_sessions import read_sessions


def run(context: Context) -> None:
    """Leaves `checkpoint/` and `summary.json`."""
    own, held = _scripted(context), held_segments(context)
    collected, collected_held = _collected(context)
    facts = {} if _without_sessions(context) else _summary_of_sessions(context)
    _fine_tune(context, [*own, *collected], [*held, *collected_held], facts, drafts=True)


def run_competent(context: Context) -> None:
    """The same number of steps on the demonstrations of good judgement alone: what a better teacher would have been worth."""
    _fine_tune(context, _scripted(context, competent_only=True), held_segments(context), {}, drafts=False)


def held_segments(context: Context) -> list[Segment]:
    """All segments of the run's own sessions that no stage learns from."""
    if _without_sessions(context):
        return []
    sessions = read_sessions(context.of("sessions"), first=_learned_sessions(context))
    return [segment for session in sessions for segment in session.segments()]


def _scripted(context: Context, *, competent_only: bool = False) -> list[Segment]:
    """All segments of the run's own sessions that are not held out."""
    if _without_sessions(context):
        return []
    sessions = islice(read_sessions(context.of("sessions")), _learned_sessions(context))
    return [
        segment
        for session in sessions
        if session.header.recipe["competent"] or not competent_only
        for segment in session.segments()
    ]


def _collected(context: Context) -> tuple[list[Segment], list[Segment]]:
    """Of the folders that the recipe names, in their order, rendered for the model that learns from them; and those held out, which are the last
    sessions. None is where the run has sessions, whose held-out ones are the measure."""
    folders = context.recipe.sft.collected
    for line in filter(
        None, (other_tools(Path(folder), preset_of(context.recipe.harness).schemas) for folder in folders)
    ):
        context.log.note(context.stage, line)
    renderer = load_renderer(pretrained_checkpoint(context)) if folders else None
    found = [(folder, segment) for folder in folders if renderer for segment in taught(Path(folder), renderer)]
    if not _without_sessions(context):
        return [segment for _, segment in found], []
    sessions = list(dict.fromkeys((folder, segment.session) for folder, segment in found))
    held = set(sessions[len(sessions) - round(len(sessions) * context.recipe.sft.heldout_share) :])
    split: tuple[list[Segment], list[Segment]] = [], []
    for folder, segment in found:
        split[(folder, segment.session) in held].append(segment)
    return split


def _without_sessions(context: Context) -> bool:
    return "sessions" in context.recipe.run.without


def _summary_of_sessions(context: Context) -> dict[str, Any]:
    return json.loads((context.of("sessions") / "summary.json").read_text())


def _learned_sessions(context: Context) -> int:
    count = _summary_of_sessions(context)["sessions"]
    return count - round(count * context.recipe.sft.heldout_share)


def _fine_tune(
    context: Context, learned: list[Segment], held: list[Segment], facts: dict[str, Any], *, drafts: bool
) -> None:
    recipe, start = context.recipe, pretrained_checkpoint(context)
    model = load_model(context, start, drafts=drafts)
    check_companions(model.config, start)
    held = fit_segments(
        held,
        model.config.context_length,
        recipe.sft.too_long,
        lambda line: context.log.note(context.stage, line),
        "held-out segment",
    )
    result = run_sft(
        recipe.sft, model, learned, context.folder, context.log, stage=context.stage, draft_every=recipe.mtp.every
    )
    folders = ", ".join(Path(folder).name for folder in recipe.sft.collected)
    own = [] if _without_sessions(context) else ["of the run's sessions"]
    data = f"{len(learned):,} segments {' and '.join([*own, *([f'of collected ones ({folders})'] if folders else [])])}"
    save_checkpoint(model, context.folder / CHECKPOINT, tokenizer_from=start, trained=Training(context.stage, data))
    if recipe.sft.lora.rank:
        save_adapter(model, recipe.sft.lora, context.folder / ADAPTER, start)
    sampled = int(sum(segment.sampled.sum() for segment in learned))
    measured = {"heldout_segments": len(held), "heldout_loss": session_loss(model, held)}
    context.summarize({**facts, "segments": len(learned), "sampled_tokens": sampled, **asdict(result), **measured})
