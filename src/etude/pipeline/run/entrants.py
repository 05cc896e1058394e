"""From words on the command line to who is asked: controls, a checkpoint with the engine in this process, an endpoint, a record.

expert   nop   cheats   cheat:NAME          scripted agents, which need no model
[NAME=]checkpoint:DIR                       a Hugging Face directory
[NAME=]URL#MODEL                            an OpenAI-compatible endpoint, http://127.0.0.1:8000/v1#qwen3-coder
[NAME=]replay:DIR                           sessions of an earlier run, RUN/sessions/NAME@EFFORT, answered again
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from etude.agent.harness.presets.definition import require_allowed
from etude.agent.harness.presets.preset import harness_hash
from etude.agent.harness.settings import HarnessSettings
from etude.core.events.log import EventLog
from etude.core.redact.keys import api_key
from etude.core.spelling import similar
from etude.evaluate.bench.runs import conditions, scripted
from etude.evaluate.bench.runs.folder import NAME, RunFolder, key_of
from etude.evaluate.bench.runs.participant import Participant, ParticipantPolicy
from etude.evaluate.bench.runs.recovery import WITHOUT, OneArm, require_trigger
from etude.evaluate.bench.runs.replayed import RecordedRunPolicy
from etude.evaluate.bench.suites.suite import Suite
from etude.pipeline.recipe.recipe import Recipe
from etude.pipeline.run.checkpoint_entrant import CHECKPOINT, checkpoint
from etude.pipeline.run.endpoint import Endpoint, greet
from etude.pipeline.run.limits import LIMITS
from etude.pipeline.run.manner import PolicyArgument, PolicyOptions, SuiteContext, UnknownPolicy
from etude.pipeline.run.other_agent import fits, harness_of, made
from etude.tasks.cheats.exercise import CHEATS

# An earlier run's sessions as an entrant, under the limits that they were made under.


REPLAY = "replay:"


def replay(called: PolicyArgument, occasion: SuiteContext) -> Participant:
    """`[NAME=]replay:RUN/sessions/NAME@EFFORT`. Raises UnknownPolicy."""
    folder = Path(called.what.removeprefix(REPLAY)).resolve()
    run = RunFolder(folder.parent.parent)
    known = conditions.read(run) if folder.is_dir() and folder.parent.name == "sessions" else None
    facts = (known or {"policies": {}})["policies"].get(folder.name)
    if known is None or facts is None:
        raise UnknownPolicy(
            f"{called.what}: give the sessions of a policy in a bench run, {REPLAY}RUN/sessions/NAME@EFFORT"
        )
    if known["shared"]["suite"]["digest"] != occasion.suite.digest:
        raise UnknownPolicy(
            f"{called.what} are sessions of {known['shared']['suite']['label']}, which is not the suite as it is here: "
            "replay them in the suite that they were made in"
        )
    if facts["kind"] == "control" or facts.get("agent"):
        who = facts.get("agent") or "a scripted agent"
        raise UnknownPolicy(f"{called.what} are sessions of {who}: those of a model in our own harness can be replayed")
    settings = HarnessSettings.model_validate(facts["settings"])
    allowed = [occasion.manner.preset or ""]
    require_allowed(settings.preset, allowed, f"{folder}", f"give --preset {settings.preset}")
    name = called.name or f"replay-{facts['name']}"
    if not NAME.fullmatch(name):
        raise UnknownPolicy(f"{called.what}: name it, NAME={called.what}")

    @asynccontextmanager
    async def opened():
        yield ParticipantPolicy(RecordedRunPolicy(name, folder))

    source = {"replayed": f"{folder.name} of {known['shared']['suite']['label']}"}
    return Participant(name, facts["effort"], "replay", settings, harness_hash(settings, ""), opened, facts=source)


# An OpenAI-compatible endpoint as an entrant: greeted before it is asked, given up when it is gone.


RETRIES = 8  # waits of 0.5 to 60 s, over two minutes in all: quotas are counted by the minute


def endpoint(called: PolicyArgument, occasion: SuiteContext) -> Participant:
    """`[NAME=]URL#MODEL`; without a name it is called as its model. Raises UnknownPolicy, BadKey."""
    from etude.agent.policy.breaker import Breaker

    url, _, model = called.what.partition("#")
    if not model:
        raise UnknownPolicy(f"{called.what}: say which model to ask for there, {called.what}#MODEL")
    manner = occasion.manner
    api_key(manner.key_env)  # a bad one is refused before anybody is asked
    own = Endpoint(
        url, model, temperature=manner.temperature, context_tokens=manner.context_tokens, key_env=manner.key_env,
        timeout_s=manner.timeout_s, omit=manner.omit, max_tokens_field=manner.max_tokens_field, command=manner.command,
    )  # fmt: skip
    settings = occasion.pinned(own.harness(occasion.recipe), occasion.chosen(called.effort))
    name = called.name or re.sub(r"[^\w.-]", "-", model).lstrip("-._")

    @asynccontextmanager
    async def opened():
        await greet(own, settings, key_of(name, called.effort, called.agent), occasion.log)
        client = own.policy(RETRIES)
        try:
            yield ParticipantPolicy(Breaker(client), agent=made(called.agent, settings))
        finally:
            await client.close()

    digest, facts = harness_of(called.agent, settings)
    facts |= {"url": url, "omit": list(manner.omit)}
    return Participant(name, called.effort, "endpoint", settings, digest, opened, model, facts, called.agent)


CONTROLS = (scripted.NOP, scripted.CHEATS, scripted.EXPERT)
KINDS: dict[str, Callable[[PolicyArgument, SuiteContext], Participant]] = {
    "http://": endpoint,
    "https://": endpoint,
    CHECKPOINT: checkpoint,
    REPLAY: replay,
}


def entrants(
    words: Sequence[str], suite: Suite, recipe: Recipe, manner: PolicyOptions, log: EventLog, *, only: bool = False
) -> list[Participant]:
    """Controls first: where the reference fails or a cheat passes, it is known before a model is paid for.

    With `only` those named alone, else the controls join them; the expert does where every task has a reference. Raises
    UnknownPolicy, UnknownCheat, NoMiniSweAgent.
    """
    named = list(dict.fromkeys(words))
    absent = [] if only else [word for word in CONTROLS if word not in named]
    if scripted.EXPERT in absent and not all(scripted.has_reference(suite.task(task_id)) for task_id in suite.ids):
        absent.remove(scripted.EXPERT)
    occasion = SuiteContext(suite, recipe, manner, log)
    controls = [_control(word, occasion) for word in [*absent, *named] if scripted.script(word)]
    asked = [called for word in named if not scripted.script(word) for called in _called(word, manner)]
    for agent in {called.agent for called in asked}:
        fits(agent, suite)
    found = [*controls, *(_kind(called)(called, occasion) for called in asked)]
    names = [entrant.key for entrant in found]
    if twice := [key for key in names if names.count(key) > 1]:
        raise UnknownPolicy(f"two policies are called {twice[0]}: name one with NAME=")
    return found


def unsummarized(
    words: Sequence[str], suite: Suite, recipe: Recipe, manner: PolicyOptions, log: EventLog
) -> list[Participant]:
    """The other arm of those named: the same without self-summaries. Raises OneArm, and what `entrants` does."""
    if not words:
        raise UnknownPolicy("--arms compares the policies that are named: name one with --policy")
    for entrant in entrants(words, suite, recipe, manner, log, only=True):
        if entrant.agent or entrant.kind == "replay":
            raise OneArm(
                f"--arms: {entrant.key} does not work in our harness, and only that summarizes sessions; leave it out"
            )
        require_trigger(entrant.harness, entrant.key)
    found = entrants(words, suite, recipe, replace(manner, summaries=False), log, only=True)
    return [replace(entrant, name=f"{entrant.name}{WITHOUT}") for entrant in found]


def _called(word: str, manner: PolicyOptions) -> list[PolicyArgument]:
    """Everything a word asks for: each effort, with each agent. A record has its own."""
    name, _, what = word.partition("=") if "=" in re.split("[/:]", word)[0] else ("", "", word)
    if "=" in word and what != word and not NAME.fullmatch(name):
        raise UnknownPolicy(f"{word}: a policy's name has letters, digits, '.', '_' and '-', not {name!r}")
    if what.startswith(REPLAY):
        return [PolicyArgument(word, name, what, "medium")]
    return [PolicyArgument(word, name, what, effort, agent) for effort in manner.efforts for agent in manner.agents]


def _kind(called: PolicyArgument) -> Callable[[PolicyArgument, SuiteContext], Participant]:
    for lead, kind in KINDS.items():
        if called.what.startswith(lead):
            return kind
    raise UnknownPolicy(_unknown(called.word, called.what))


def _unknown(word: str, what: str) -> str:
    if (Path(what) / "config.json").is_file():
        return f"{word}: a checkpoint is named {CHECKPOINT}{what}"
    near = similar(word, [*CONTROLS, *(f"cheat:{name}" for name in CHEATS)])
    hint = f"; did you mean {near[0]}?" if near else "."
    return (
        f"there is no policy {word!r}{hint} Policies are {', '.join(CONTROLS)}, cheat:NAME, {CHECKPOINT}DIR, {REPLAY}DIR, "
        "or NAME=URL#MODEL for an endpoint"
    )


def _control(word: str, occasion: SuiteContext) -> Participant:
    script = scripted.script(word)
    assert script is not None
    # It reads no prompt and samples nothing: the tools of the full preset, and room for whole files in a call.
    own = {"max_session_tokens": 2_000_000, "summary_trigger_tokens": 0, "temperature": 0.0}
    base = occasion.recipe.harness.model_copy(update={**LIMITS, **own})
    harness = occasion.pinned(base, {"preset": "full", "max_session_tokens": 2_000_000, "temperature": 0.0})

    @asynccontextmanager
    async def opened():
        yield ParticipantPolicy(script)

    name = word.replace(":", "-")
    return Participant(name, "medium", "control", harness, harness_hash(harness, ""), opened, facts={"script": word})
