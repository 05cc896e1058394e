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
from etude.pipeline.recipe.read import find_checkpoint
from etude.pipeline.recipe.recipe import Recipe
from etude.pipeline.run.checkpoint_participant import CHECKPOINT, checkpoint
from etude.pipeline.run.endpoint import Endpoint, greet
from etude.pipeline.run.limits import LIMITS
from etude.pipeline.run.other_agent import fits, harness_of, open_agent
from etude.pipeline.run.policy_options import PolicyArgument, PolicyOptions, SuiteContext, UnknownPolicy
from etude.tasks.cheats.exercise import CHEATS

# An earlier run's sessions as a participant, under the limits that they were made under.


REPLAY = "replay:"


def replay(argument: PolicyArgument, context: SuiteContext) -> Participant:
    """`[NAME=]replay:RUN/sessions/NAME@EFFORT`. Raises UnknownPolicy."""
    folder = Path(argument.what.removeprefix(REPLAY)).resolve()
    run = RunFolder(folder.parent.parent)
    known = conditions.read(run) if folder.is_dir() and folder.parent.name == "sessions" else None
    facts = (known or {"policies": {}})["policies"].get(folder.name)
    if known is None or facts is None:
        raise UnknownPolicy(
            f"{argument.what}: give the sessions of a policy in a bench run, {REPLAY}RUN/sessions/NAME@EFFORT"
        )
    if known["shared"]["suite"]["digest"] != context.suite.digest:
        raise UnknownPolicy(
            f"{argument.what} are sessions of {known['shared']['suite']['label']}, which is not the suite as it is here: "
            "replay them in the suite that they were made in"
        )
    if facts["kind"] == "control" or facts.get("agent"):
        who = facts.get("agent") or "a scripted agent"
        raise UnknownPolicy(
            f"{argument.what} are sessions of {who}: those of a model in our own harness can be replayed"
        )
    settings = HarnessSettings.model_validate(facts["settings"])
    allowed = [context.options.preset or ""]
    require_allowed(settings.preset, allowed, f"{folder}", f"give --preset {settings.preset}")
    name = argument.name or f"replay-{facts['name']}"
    if not NAME.fullmatch(name):
        raise UnknownPolicy(f"{argument.what}: name it, NAME={argument.what}")

    @asynccontextmanager
    async def opened():
        yield ParticipantPolicy(RecordedRunPolicy(name, folder))

    source = {"replayed": f"{folder.name} of {known['shared']['suite']['label']}"}
    return Participant(name, facts["effort"], "replay", settings, harness_hash(settings, ""), opened, facts=source)


# An OpenAI-compatible endpoint as a participant: greeted before the first task, given up when it is gone.


RETRIES = 8  # waits of 0.5 to 60 s, over two minutes in all: quotas are counted by the minute


def endpoint(argument: PolicyArgument, context: SuiteContext) -> Participant:
    """`[NAME=]URL#MODEL`; without a name it is called as its model. Raises UnknownPolicy, BadKey."""
    from etude.agent.policy.breaker import Breaker

    url, _, model = argument.what.partition("#")
    if not model:
        raise UnknownPolicy(f"{argument.what}: say which model to ask for there, {argument.what}#MODEL")
    options = context.options
    api_key(options.key_env)  # a bad one is refused before anybody is asked
    own = Endpoint(
        url, model, temperature=options.temperature, context_tokens=options.context_tokens, key_env=options.key_env,
        timeout_s=options.timeout_s, omit=options.omit, max_tokens_field=options.max_tokens_field, command=options.command,
    )  # fmt: skip
    settings = context.pin_settings(own.harness(context.recipe), context.command_line_settings(argument.effort))
    name = argument.name or re.sub(r"[^\w.-]", "-", model).lstrip("-._")

    @asynccontextmanager
    async def opened():
        await greet(own, settings, key_of(name, argument.effort, argument.agent), context.log)
        client = own.policy(RETRIES)
        try:
            await client.read_list()
            yield ParticipantPolicy(Breaker(client), agent=open_agent(argument.agent, settings))
        finally:
            await client.close()

    digest, facts = harness_of(argument.agent, settings)
    facts |= {"url": url, "omit": list(options.omit)}
    return Participant(name, argument.effort, "endpoint", settings, digest, opened, model, facts, argument.agent)


CONTROLS = (scripted.NOP, scripted.CHEATS, scripted.EXPERT)
KINDS: dict[str, Callable[[PolicyArgument, SuiteContext], Participant]] = {
    "http://": endpoint,
    "https://": endpoint,
    CHECKPOINT: checkpoint,
    REPLAY: replay,
}


def resolve_participants(
    words: Sequence[str], suite: Suite, recipe: Recipe, options: PolicyOptions, log: EventLog, *, only: bool = False
) -> list[Participant]:
    """Controls first: where the reference fails or a cheat passes, it is known before a model is paid for.

    With `only` those named alone, else the controls join them; the expert does where every task has a reference. Raises
    UnknownPolicy, UnknownCheat, NoMiniSweAgent.
    """
    named = list(dict.fromkeys(words))
    absent = [] if only else [word for word in CONTROLS if word not in named]
    if scripted.EXPERT in absent and not all(scripted.has_reference(suite.task(task_id)) for task_id in suite.ids):
        absent.remove(scripted.EXPERT)
    context = SuiteContext(suite, recipe, options, log)
    controls = [_control(word, context) for word in [*absent, *named] if scripted.script(word)]
    asked = [argument for word in named if not scripted.script(word) for argument in _arguments(word, options)]
    for agent in {argument.agent for argument in asked}:
        fits(agent, suite)
    found = [*controls, *(_kind(argument)(argument, context) for argument in asked)]
    names = [participant.key for participant in found]
    if twice := [key for key in names if names.count(key) > 1]:
        raise UnknownPolicy(f"two policies are called {twice[0]}: name one with NAME=")
    return found


def participants_without_summaries(
    words: Sequence[str], suite: Suite, recipe: Recipe, options: PolicyOptions, log: EventLog
) -> list[Participant]:
    """The other arm of those named: the same without self-summaries. Raises OneArm, and what `resolve_participants` does."""
    if not words:
        raise UnknownPolicy("--arms compares the policies that are named: name one with --policy")
    for participant in resolve_participants(words, suite, recipe, options, log, only=True):
        if participant.agent or participant.kind == "replay":
            raise OneArm(
                f"--arms: {participant.key} does not work in our harness, and only that summarizes sessions; leave it out"
            )
        require_trigger(participant.harness, participant.key)
    found = resolve_participants(words, suite, recipe, replace(options, summaries=False), log, only=True)
    return [replace(participant, name=f"{participant.name}{WITHOUT}") for participant in found]


def _arguments(word: str, options: PolicyOptions) -> list[PolicyArgument]:
    """Everything a word asks for: each effort, with each agent. A record has its own."""
    name, _, what = word.partition("=") if "=" in re.split("[/:]", word)[0] else ("", "", word)
    if "=" in word and what != word and not NAME.fullmatch(name):
        raise UnknownPolicy(f"{word}: a policy's name has letters, digits, '.', '_' and '-', not {name!r}")
    if what.startswith(REPLAY):
        return [PolicyArgument(word, name, what, "medium")]
    return [PolicyArgument(word, name, what, effort, agent) for effort in options.efforts for agent in options.agents]


def _kind(argument: PolicyArgument) -> Callable[[PolicyArgument, SuiteContext], Participant]:
    for lead, kind in KINDS.items():
        if argument.what.startswith(lead):
            return kind
    raise UnknownPolicy(_unknown(argument.word, argument.what))


def _unknown(word: str, what: str) -> str:
    if find_checkpoint(what) is not None:
        return f"{word}: a checkpoint is named {CHECKPOINT}{what}"
    near = similar(word, [*CONTROLS, *(f"cheat:{name}" for name in CHEATS)])
    hint = f"; did you mean {near[0]}?" if near else "."
    return (
        f"there is no policy {word!r}{hint} Policies are {', '.join(CONTROLS)}, cheat:NAME, {CHECKPOINT}DIR, {REPLAY}DIR, "
        "or NAME=URL#MODEL for an endpoint"
    )


def _control(word: str, context: SuiteContext) -> Participant:
    script = scripted.script(word)
    assert script is not None
    # It reads no prompt and samples nothing: the tools of the full preset, and room for whole files in a call.
    own = {"max_session_tokens": 2_000_000, "summary_trigger_tokens": 0, "temperature": 0.0}
    base = context.recipe.harness.model_copy(update={**LIMITS, **own})
    harness = context.pin_settings(base, {"preset": "full", "max_session_tokens": 2_000_000, "temperature": 0.0})

    @asynccontextmanager
    async def opened():
        yield ParticipantPolicy(script)

    name = word.replace(":", "-")
    return Participant(name, "medium", "control", harness, harness_hash(harness, ""), opened, facts={"script": word})
