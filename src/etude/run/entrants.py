"""From words on the command line to who is asked: controls, a checkpoint with the engine in this process, an endpoint.

expert   nop   cheats   cheat:NAME          scripted agents, which need no model
[NAME=]checkpoint:DIR                       a Hugging Face directory
[NAME=]URL#MODEL                            an OpenAI-compatible endpoint, http://127.0.0.1:8000/v1#qwen3-coder
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from etude.bench.runs import scripted
from etude.bench.runs.entrant import Entrant, Seat
from etude.bench.runs.folder import NAME, key_of
from etude.bench.suites.suite import Suite
from etude.events.log import EventLog
from etude.harness.presets.preset import harness_hash
from etude.harness.settings import HarnessSettings
from etude.recipe.recipe import Recipe
from etude.run.endpoint import LIMITS, Endpoint, greet
from etude.trace.entry import Effort

CONTROLS = (scripted.NOP, scripted.CHEATS, scripted.EXPERT)
CHECKPOINT = "checkpoint:"
RETRIES = 8  # waits of 0.5 to 60 s, over two minutes in all: quotas are counted by the minute
_ADDRESS = re.compile(r"https?://")


class UnknownPolicy(Exception):
    """Nobody is called so; says who there is."""


@dataclass(frozen=True)
class Manner:
    """How they are asked, beside what the suite pins. `preset` None: the one that the kind of policy is used to."""

    efforts: tuple[Effort, ...] = ("medium",)
    temperature: float = 1.0
    preset: str | None = None
    context_tokens: int | None = None
    key_env: str = "OPENAI_API_KEY"
    timeout_s: float = 300.0
    omit: tuple[str, ...] = ()
    max_tokens_field: str = "max_tokens"
    concurrency: int = 4


def entrants(
    words: Sequence[str], suite: Suite, recipe: Recipe, manner: Manner, log: EventLog, *, only: bool = False
) -> list[Entrant]:
    """Controls first: where the reference fails or a cheat passes, it is known before a model is paid for.

    With `only` those named alone, else the controls join them; the expert does where every task has a reference. Raises
    UnknownPolicy, UnknownCheat.
    """
    named = list(dict.fromkeys(words))
    absent = [] if only else [word for word in CONTROLS if word not in named]
    if scripted.EXPERT in absent and not all(scripted.has_reference(suite.task(task_id)) for task_id in suite.ids):
        absent.remove(scripted.EXPERT)
    ordered = [word for word in [*absent, *named] if scripted.script(word)] + [
        w for w in named if not scripted.script(w)
    ]
    found = [entrant for word in ordered for entrant in _made(word, suite, recipe, manner, log)]
    names = [entrant.key for entrant in found]
    if twice := [key for key in names if names.count(key) > 1]:
        raise UnknownPolicy(f"two policies are called {twice[0]}: name one with NAME=")
    return found


def _made(word: str, suite: Suite, recipe: Recipe, manner: Manner, log: EventLog) -> list[Entrant]:
    script = scripted.script(word)
    if script is not None:
        return [_control(word, suite, recipe)]
    name, _, what = word.partition("=") if "=" in re.split("[/:]", word)[0] else ("", "", word)
    if "=" in word and what != word and not NAME.fullmatch(name):
        raise UnknownPolicy(f"{word}: a policy's name has letters, digits, '.', '_' and '-', not {name!r}")
    if _ADDRESS.match(what):
        return [_endpoint(name, what, effort, suite, recipe, manner, log) for effort in manner.efforts]
    if what.startswith(CHECKPOINT):
        folder = Path(what.removeprefix(CHECKPOINT))
        return [_checkpoint(name, folder, effort, suite, recipe, manner) for effort in manner.efforts]
    raise UnknownPolicy(_unknown(word, what))


def _unknown(word: str, what: str) -> str:
    if (Path(what) / "config.json").is_file():
        return f"{word}: a checkpoint is named {CHECKPOINT}{what}"
    near = difflib.get_close_matches(word, [*CONTROLS, *(f"cheat:{name}" for name in scripted.cheats.CHEATS)], 1)
    hint = f"; did you mean {near[0]}?" if near else ""
    return (
        f"there is no policy {word!r}{hint} Policies are {', '.join(CONTROLS)}, cheat:NAME, checkpoint:DIR, "
        "or NAME=URL#MODEL for an endpoint"
    )


def _control(word: str, suite: Suite, recipe: Recipe) -> Entrant:
    script = scripted.script(word)
    assert script is not None
    # It reads no prompt and samples nothing: the tools of the full preset, and room for whole files in a call.
    base = recipe.harness.model_copy(update={**LIMITS, "max_session_tokens": 2_000_000, "temperature": 0.0})
    harness = _pinned(suite, base, {"preset": "full", "max_session_tokens": 2_000_000, "temperature": 0.0})

    @asynccontextmanager
    async def opened():
        yield Seat(script)

    name = word.replace(":", "-")
    return Entrant(name, "medium", "control", harness, harness_hash(harness, ""), opened, facts={"script": word})


def _endpoint(
    name: str, what: str, effort: Effort, suite: Suite, recipe: Recipe, manner: Manner, log: EventLog
) -> Entrant:
    from etude.policy.breaker import Breaker

    url, _, model = what.partition("#")
    if not model:
        raise UnknownPolicy(f"{what}: say which model to ask for there, {what}#MODEL")
    own = Endpoint(
        url, model, temperature=manner.temperature, context_tokens=manner.context_tokens, key_env=manner.key_env,
        timeout_s=manner.timeout_s, omit=manner.omit, max_tokens_field=manner.max_tokens_field,
    )  # fmt: skip
    harness = _pinned(suite, own.harness(recipe), _chosen(manner, effort))
    called = name or re.sub(r"[^\w.-]", "-", model).lstrip("-._")

    @asynccontextmanager
    async def opened():
        await greet(own, harness, key_of(called, effort), log)
        client = own.policy(RETRIES)
        try:
            yield Seat(Breaker(client))
        finally:
            await client.close()

    facts: dict[str, Any] = {"url": url, "omit": list(manner.omit)}
    return Entrant(called, effort, "endpoint", harness, harness_hash(harness, ""), opened, model, facts)


def _checkpoint(name: str, folder: Path, effort: Effort, suite: Suite, recipe: Recipe, manner: Manner) -> Entrant:
    from etude.chat.load import load_renderer
    from etude.chat.nano import NanoRenderer
    from etude.harness.parts import fitted
    from etude.run.checkpoint_identity import identity

    if not (folder / "config.json").is_file():
        raise UnknownPolicy(f"{CHECKPOINT}{folder}: there is no config.json, so it is no checkpoint directory")
    renderer = load_renderer(folder)
    nano = isinstance(renderer, NanoRenderer)
    chosen = _chosen(manner, effort)
    if nano:  # its habits are trained in: the recipe's limits, and the tools it knows
        _nano_as_it_is(what=f"{CHECKPOINT}{folder}", manner=manner)
        chosen |= {"preset": "nano"}
        harness = _pinned(suite, recipe.harness, chosen)
    else:
        own = Endpoint("", folder.name, temperature=manner.temperature, context_tokens=manner.context_tokens)
        harness = _pinned(suite, own.harness(recipe), chosen)

    @asynccontextmanager
    async def opened():
        from etude.engine.policy import EnginePolicy
        from etude.engine.settings import EngineSettings
        from etude.model.checkpoint import load_checkpoint

        model = load_checkpoint(folder)
        slots = {"max_slots": manner.concurrency, "max_batch": manner.concurrency}
        # So many at once decode quicker without drafts.
        engine = recipe.engine.model_copy(update={"draft_tokens": 0}) if nano else EngineSettings.model_validate(
            {**slots, "max_len": manner.context_tokens or model.config.max_positions}
        )  # fmt: skip
        policy = EnginePolicy.start(model, engine, name=name or folder.resolve().name, renderer=renderer)
        try:
            yield Seat(policy, renderer, engine=True)
        finally:
            policy.close()

    digest = harness_hash(harness, fitted(renderer, harness).fingerprint)
    called = name or re.sub(r"[^\w.-]", "-", folder.resolve().name).lstrip("-._")
    return Entrant(called, effort, "checkpoint", harness, digest, opened, facts={"checkpoint": identity(folder)})


def _nano_as_it_is(what: str, manner: Manner) -> None:
    if manner.preset not in (None, "nano"):
        raise UnknownPolicy(f"{what} knows the tools of the preset nano alone: leave out --preset {manner.preset}")
    if manner.context_tokens is not None:
        raise UnknownPolicy(
            f"{what} has the window of the recipe (engine.max_len): leave out --context, or ask it apart"
        )


def _chosen(manner: Manner, effort: Effort) -> dict[str, Any]:
    preset = {} if manner.preset is None else {"preset": manner.preset}
    return {"effort": effort, "temperature": manner.temperature, **preset}


def _pinned(suite: Suite, base: HarnessSettings, chosen: dict[str, Any]) -> HarnessSettings:
    """The suite's limits over the kind's own, and over both what was asked for on this command line. The web stays closed."""
    return HarnessSettings.model_validate(suite.manifest.limited(base).model_dump() | chosen | {"web": False})
