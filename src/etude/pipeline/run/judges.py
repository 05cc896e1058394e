"""Policies that answer single questions in messages: an endpoint, or a checkpoint with the engine in this process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from etude.agent.policy.protocol import Policy
from etude.evaluate.bench.grading.endpoint import NoJudge, client_of
from etude.evaluate.bench.grading.single_request_policy import SingleRequestPolicy
from etude.pipeline.run.checkpoint_participant import CHECKPOINT

# Questions asked at once of a checkpoint on this machine.
SLOTS = 2


@asynccontextmanager
async def answering(word: str, key_env: str, option: str = "--judge") -> AsyncIterator[Policy]:
    """The policy of a word, closed behind. Raises NoJudge."""
    if word.startswith(CHECKPOINT):
        async with _checkpoint(word.removeprefix(CHECKPOINT), option) as policy:
            yield policy
        return
    client = client_of(word, key_env, option=option)
    try:
        yield client
    finally:
        await client.close()


@asynccontextmanager
async def _checkpoint(named: str, option: str) -> AsyncIterator[Policy]:
    from etude.learn.model.named_checkpoint import find_checkpoint

    try:
        folder, title = find_checkpoint(named)
    except ValueError as error:
        raise NoJudge(f"{option} {CHECKPOINT}{named}: {error}") from error
    if not (folder / "config.json").is_file():
        raise NoJudge(f"{option} {CHECKPOINT}{folder}: there is no config.json, so it is no checkpoint directory")
    from etude.agent.chat.load import load_renderer
    from etude.learn.engine.policy import EnginePolicy
    from etude.learn.engine.settings import EngineSettings
    from etude.learn.model.checkpoint import load_checkpoint

    renderer, model = load_renderer(folder), load_checkpoint(folder)
    limits = {"max_slots": SLOTS, "max_batch": SLOTS, "max_len": model.config.context_length}
    policy = EnginePolicy.start(model, EngineSettings.model_validate(limits), name=title, renderer=renderer)
    try:
        yield SingleRequestPolicy(policy, renderer)
    finally:
        policy.close()
