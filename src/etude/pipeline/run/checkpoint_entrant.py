"""A checkpoint as an entrant: its engine starts in this process when its turn comes."""

from __future__ import annotations

import re
from contextlib import asynccontextmanager
from pathlib import Path

from etude.agent.harness.settings import HarnessSettings
from etude.evaluate.bench.runs.participant import Participant, ParticipantPolicy
from etude.pipeline.run.endpoint import Endpoint
from etude.pipeline.run.manner import PolicyArgument, SuiteContext, UnknownPolicy
from etude.pipeline.run.other_agent import harness_of, made

CHECKPOINT = "checkpoint:"


def checkpoint(called: PolicyArgument, occasion: SuiteContext) -> Participant:
    """`[NAME=]checkpoint:DIR`; without a name it is called as its folder. Raises UnknownPolicy."""
    from etude.agent.chat.load import load_renderer
    from etude.agent.chat.nano import NanoRenderer
    from etude.pipeline.run.checkpoint_identity import identity

    folder = Path(called.what.removeprefix(CHECKPOINT))
    if not (folder / "config.json").is_file():
        raise UnknownPolicy(f"{called.what}: there is no config.json, so it is no checkpoint directory")
    renderer = load_renderer(folder)
    nano = isinstance(renderer, NanoRenderer)
    manner = occasion.manner
    settings = _settings(called, occasion, folder, nano=nano)

    @asynccontextmanager
    async def opened():
        from etude.learn.engine.policy import EnginePolicy
        from etude.learn.engine.settings import EngineSettings
        from etude.learn.model.checkpoint import load_checkpoint

        model = load_checkpoint(folder)
        slots = {"max_slots": manner.concurrency, "max_batch": manner.concurrency}
        # This many sessions at once decode quicker without drafts.
        engine = occasion.recipe.engine.model_copy(update={"draft_tokens": 0}) if nano else EngineSettings.model_validate(
            {**slots, "max_len": manner.context_tokens or model.config.context_length}
        )  # fmt: skip
        policy = EnginePolicy.start(model, engine, name=name, renderer=renderer)
        try:
            yield ParticipantPolicy(policy, renderer, engine=True, agent=made(called.agent, settings, renderer))
        finally:
            policy.close()

    name = called.name or re.sub(r"[^\w.-]", "-", folder.resolve().name).lstrip("-._")
    digest, facts = harness_of(called.agent, settings, renderer)
    facts |= {"checkpoint": identity(folder)}
    return Participant(name, called.effort, "checkpoint", settings, digest, opened, facts=facts, agent=called.agent)


def _settings(called: PolicyArgument, occasion: SuiteContext, folder: Path, *, nano: bool) -> HarnessSettings:
    """A nano model's habits are trained in: it has the recipe's limits and the tools it knows. Raises UnknownPolicy."""
    manner, chosen = occasion.manner, occasion.chosen(called.effort)
    if nano:
        _as_it_is(called, occasion)
        return occasion.pinned(occasion.recipe.harness, chosen | {"preset": "nano"})
    own = Endpoint("", folder.name, temperature=manner.temperature, context_tokens=manner.context_tokens)
    return occasion.pinned(own.harness(occasion.recipe), chosen)


def _as_it_is(called: PolicyArgument, occasion: SuiteContext) -> None:
    """What a nano model can't do is refused rather than passed over."""
    manner, what = occasion.manner, called.what
    if manner.preset not in (None, "nano"):
        raise UnknownPolicy(f"{what} knows the tools of the preset nano alone: leave out --preset {manner.preset}")
    if manner.context_tokens is not None:
        raise UnknownPolicy(
            f"{what} has the window of the recipe (engine.max_len): leave out --context, or ask it apart"
        )
    if called.agent:
        raise UnknownPolicy(f"{what} knows the tools of the preset nano alone, not those of {called.agent}")
