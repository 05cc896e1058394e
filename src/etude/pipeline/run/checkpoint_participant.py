"""A checkpoint as a participant: its engine starts in this process when its turn comes."""

from __future__ import annotations

import re
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etude.agent.harness.settings import HarnessSettings
from etude.evaluate.bench.runs.participant import Participant, ParticipantPolicy
from etude.pipeline.run.endpoint import Endpoint
from etude.pipeline.run.limits import CONTEXT_TOKENS, LAPTOP_PRESET, EngineRoom, engine_room
from etude.pipeline.run.other_agent import harness_of, open_agent
from etude.pipeline.run.policy_options import PolicyArgument, SuiteContext, UnknownPolicy

if TYPE_CHECKING:
    from etude.agent.chat.renderer import Renderer
    from etude.learn.engine.policy import EnginePolicy
    from etude.learn.engine.vllm.policy import VllmPolicy
    from etude.pipeline.recipe.recipe import Recipe

CHECKPOINT = "checkpoint:"


def checkpoint(argument: PolicyArgument, context: SuiteContext) -> Participant:
    """`[NAME=]checkpoint:DIR`; without a name it is called as its folder. DIR may be a model's name, which is downloaded here. Raises
    UnknownPolicy."""
    from etude.agent.chat.load import load_renderer
    from etude.agent.chat.nano import NanoRenderer
    from etude.pipeline.run.checkpoint_identity import identity

    folder, title = named_folder(argument)
    if not (folder / "config.json").is_file():
        raise UnknownPolicy(f"{argument.what}: there is no config.json, so it is no checkpoint directory")
    renderer = load_renderer(folder)
    nano = isinstance(renderer, NanoRenderer)
    settings = _settings(argument, context, folder, nano=nano)

    @asynccontextmanager
    async def opened():
        policy = _open_policy(folder, name, renderer, context, nano=nano)
        try:
            yield ParticipantPolicy(policy, renderer, engine=True, agent=open_agent(argument.agent, settings, renderer))
        finally:
            policy.close()

    name = argument.name or re.sub(r"[^\w.-]", "-", title).lstrip("-._")
    digest, facts = harness_of(argument.agent, settings, renderer)
    facts |= {"checkpoint": identity(folder)}
    return Participant(name, argument.effort, "checkpoint", settings, digest, opened, facts=facts, agent=argument.agent)


def _open_policy(
    folder: Path, name: str, renderer: Renderer, context: SuiteContext, *, nano: bool
) -> EnginePolicy | VllmPolicy:
    """Our engine in this process, or vLLM where the recipe's engine is vLLM. A nano model has the recipe's engine as it is, but for drafts: this
    many sessions at once decode quicker without them."""
    from etude.learn.engine.policy import EnginePolicy
    from etude.learn.engine.service import leave_cores_to_engine
    from etude.learn.engine.settings import EngineSettings
    from etude.learn.engine.vllm.policy import VllmPolicy
    from etude.learn.model.checkpoint import load_checkpoint

    engine = context.recipe.engine.model_copy(update={"draft_tokens": 0})
    room = _room(context, folder)
    limits = {"max_slots": room.slots, "max_batch": room.slots, "max_len": room.window}
    if room.slots < context.options.concurrency and not nano:
        context.log.note(
            "bench",
            f"{name}: this machine's memory holds {room.slots} sessions of {room.window} tokens, fewer than --concurrency "
            f"{context.options.concurrency}: others wait; --context with fewer tokens makes room",
        )
    if engine.kind == "vllm":
        return VllmPolicy(folder, engine if nano else engine.model_copy(update=limits), name=name)
    leave_cores_to_engine()
    model = load_checkpoint(folder)
    return EnginePolicy.start(
        model, engine if nano else EngineSettings.model_validate(limits), name=name, renderer=renderer
    )


def _room(context: SuiteContext, folder: Path) -> EngineRoom:
    """What the engine of the checkpoint has room for. vLLM sizes its cache itself."""
    from etude.learn.model.checkpoint import load_config

    options, config = context.options, load_config(folder)
    window = options.context_tokens or _window_of(context.recipe, config.context_length)
    if context.recipe.engine.kind == "vllm":
        return EngineRoom(options.concurrency, window or min(config.context_length, CONTEXT_TOKENS))
    return engine_room(config, options.concurrency, window)


def _window_of(recipe: Recipe, most: int) -> int | None:
    """engine.max_len where a recipe of a published model sets it; the laptop's is that of its nano model."""
    if recipe.harness.preset == LAPTOP_PRESET or "max_len" not in recipe.engine.model_fields_set:
        return None
    return min(recipe.engine.max_len, most)


def named_folder(argument: PolicyArgument) -> tuple[Path, str]:
    """The checkpoint's folder, and what it is called without a name. Raises UnknownPolicy."""
    from etude.learn.model.named_checkpoint import find_checkpoint

    text = argument.what.removeprefix(CHECKPOINT)
    try:
        return find_checkpoint(text)
    except ValueError as error:
        raise UnknownPolicy(f"{argument.what}: {error}") from None


def _settings(argument: PolicyArgument, context: SuiteContext, folder: Path, *, nano: bool) -> HarnessSettings:
    """A nano model's habits are trained in: it has the recipe's limits and the tools it knows. Raises UnknownPolicy."""
    from etude.learn.model.checkpoint import load_config

    options, chosen = context.options, context.command_line_settings(argument.effort)
    if nano:
        _as_it_is(argument, context)
        return context.pin_settings(context.recipe.harness, chosen | {"preset": "nano"})
    try:
        most = load_config(folder).context_length
    except ValueError as error:  # CheckpointError or UnsupportedConfig
        raise UnknownPolicy(f"{argument.what}: {error}") from None
    if (asked := options.context_tokens or 0) > most:
        raise UnknownPolicy(
            f"{argument.what}: --context {asked} is more than the model's {most} positions; give at most {most}"
        )
    window = _room(context, folder).window
    own = Endpoint("", folder.name, temperature=options.temperature, context_tokens=window).harness(context.recipe)
    return context.pin_settings(own.model_copy(update=_limits_of(context.recipe)), chosen)


def _limits_of(recipe: Recipe) -> dict[str, Any]:
    """What the recipe of a published model sets of its harness, so that a checkpoint is asked as in the run that trained it."""
    harness = recipe.harness
    return (
        {} if harness.preset == LAPTOP_PRESET else {name: getattr(harness, name) for name in harness.model_fields_set}
    )


def _as_it_is(argument: PolicyArgument, context: SuiteContext) -> None:
    """What a nano model can't do is refused rather than passed over."""
    options, what = context.options, argument.what
    if options.preset not in (None, "nano"):
        raise UnknownPolicy(f"{what} knows the tools of the preset nano alone: leave out --preset {options.preset}")
    if options.context_tokens is not None:
        raise UnknownPolicy(
            f"{what} has the window of the recipe (engine.max_len): leave out --context, or ask it apart"
        )
    if argument.agent:
        raise UnknownPolicy(f"{what} knows the tools of the preset nano alone, not those of {argument.agent}")
