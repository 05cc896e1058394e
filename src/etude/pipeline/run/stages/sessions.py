"""Stage sessions: the scripted expert at the training exercises, in real sandboxes, through the one harness."""

from __future__ import annotations

import asyncio

from etude.agent.chat.families import UnknownFamily
from etude.agent.chat.load import load_renderer
from etude.agent.chat.renderer import Renderer
from etude.core.trace.vocabulary import write_vocabulary
from etude.pipeline.run.stage import Context, StageError
from etude.pipeline.run.stages.pretraining import chat_checkpoint
from etude.rollout.code_search import code_search
from etude.rollout.scripted_sessions import collect_sessions, read_sessions
from etude.sandbox.fleet.open import open_sandboxes
from etude.tasks.generate.exercises.source import ExerciseSource


def run(context: Context) -> None:
    """Leaves a session file for each session, the vocabulary to read them with, and `summary.json`."""
    renderer = _renderer(context)
    write_vocabulary(context.folder, renderer.vocabulary())
    asyncio.run(_collect(context, renderer))
    count = competent = summarized = tokens = 0
    for session in read_sessions(context.folder):
        segments = session.segments()
        count, tokens = count + 1, tokens + sum(map(len, segments))
        competent += bool(session.header.recipe["competent"])
        summarized += len(segments) > 1
    context.summarize({"sessions": count, "competent": competent, "summarized": summarized, "session_tokens": tokens})


def _renderer(context: Context) -> Renderer:
    """The chat format of the model that will learn from the sessions."""
    folder = chat_checkpoint(context)
    try:
        return load_renderer(folder)
    except (UnknownFamily, ValueError) as error:
        raise StageError(
            f"{folder} has no chat format to write demonstrations in: {error}. `etude tokenizer extend --chat` adds the laptop model's; or begin "
            "with an instruction-tuned checkpoint (model.init)"
        ) from error


async def _collect(context: Context, renderer: Renderer) -> None:
    recipe = context.recipe
    pool = await open_sandboxes(recipe.fleet, recipe.sandbox)
    try:
        source = ExerciseSource(recipe.exercises)
        async with code_search(recipe.harness) as search:
            await collect_sessions(
                source, recipe.sessions, recipe.harness, renderer, pool, context.folder, context.log, search=search
            )
    finally:
        await pool.close()
