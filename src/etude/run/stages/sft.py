"""Stage sft: sessions of the scripted expert in real sandboxes, then supervised fine-tuning of the base on them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

from etude.chat.nano import NanoRenderer
from etude.factory.exercises.source import ExerciseSource
from etude.factory.sessions import collect_sessions, read_sessions
from etude.model.checkpoint import load_checkpoint, save_checkpoint
from etude.run.stage import Context
from etude.run.stages.base import CHECKPOINT
from etude.sandbox.pool import open_pool
from etude.trace.segment import Segment
from etude.trace.vocabulary import write_vocabulary
from etude.train.sft import run_sft

SESSIONS = "sessions"


def run(context: Context) -> None:
    """Leaves `sessions/`, `checkpoint/` and `summary.json`."""
    recipe, base = context.recipe, context.of("base") / CHECKPOINT
    folder = context.folder / SESSIONS
    asyncio.run(_collect(context, NanoRenderer.load(base), folder))
    sessions = list(read_sessions(folder))
    segments = [segment for session in sessions for segment in session.segments()]
    model = load_checkpoint(base)
    result = run_sft(recipe.sft, model, segments, context.folder, context.log)
    save_checkpoint(model, context.folder / CHECKPOINT, tokenizer_from=base)
    context.summarize(
        {
            "sessions": len(sessions),
            "competent": sum(bool(session.header.recipe["competent"]) for session in sessions),
            "summarized": sum(len(session.segments()) > 1 for session in sessions),
            "segments": len(segments),
            "session_tokens": sum(map(len, segments)),
            "sampled_tokens": int(sum(segment.sampled.sum() for segment in segments)),
            "steps": result.steps,
            "tokens": result.tokens,
            "loss": result.loss,
        }
    )


def competent_segments(folder: Path) -> Iterator[Segment]:
    """What a run's demonstrations of good judgement alone would teach."""
    for session in read_sessions(folder, competent_only=True):
        yield from session.segments()


async def _collect(context: Context, renderer: NanoRenderer, folder: Path) -> None:
    recipe = context.recipe
    pool = await open_pool(recipe.sandbox)
    try:
        source = ExerciseSource(recipe.exercises)
        await collect_sessions(source, recipe.sessions, recipe.harness, renderer, pool, folder, context.log)
    finally:
        await pool.close()
    write_vocabulary(folder, renderer.vocabulary())
