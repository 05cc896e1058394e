"""An OpenAI-compatible endpoint as an entrant: greeted before it is asked, given up when it is gone."""

from __future__ import annotations

import re
from contextlib import asynccontextmanager

from etude.core.redact.keys import api_key
from etude.evaluate.bench.runs.folder import key_of
from etude.evaluate.bench.runs.participant import Participant, ParticipantPolicy
from etude.pipeline.run.endpoint import Endpoint, greet
from etude.pipeline.run.manner import PolicyArgument, SuiteContext, UnknownPolicy
from etude.pipeline.run.other_agent import harness_of, made

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
