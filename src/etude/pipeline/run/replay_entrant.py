"""An earlier run's sessions as an entrant, under the limits that they were made under."""

from __future__ import annotations

from contextlib import asynccontextmanager
from pathlib import Path

from etude.agent.harness.presets.preset import harness_hash
from etude.agent.harness.settings import HarnessSettings
from etude.evaluate.bench.runs import conditions
from etude.evaluate.bench.runs.folder import NAME, RunFolder
from etude.evaluate.bench.runs.participant import Participant, ParticipantPolicy
from etude.evaluate.bench.runs.replayed import RecordedRunPolicy
from etude.pipeline.run.manner import PolicyArgument, SuiteContext, UnknownPolicy

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
    name = called.name or f"replay-{facts['name']}"
    if not NAME.fullmatch(name):
        raise UnknownPolicy(f"{called.what}: name it, NAME={called.what}")

    @asynccontextmanager
    async def opened():
        yield ParticipantPolicy(RecordedRunPolicy(name, folder))

    source = {"replayed": f"{folder.name} of {known['shared']['suite']['label']}"}
    return Participant(name, facts["effort"], "replay", settings, harness_hash(settings, ""), opened, facts=source)
