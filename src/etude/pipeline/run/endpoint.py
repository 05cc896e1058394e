"""An OpenAI-compatible endpoint as the bench asks it: client, limits, and the greeting that finds out whether it can be asked at all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from etude.agent.harness.presets.preset import preset
from etude.agent.harness.settings import HarnessSettings
from etude.agent.harness.task_facts import TaskFacts
from etude.agent.policy.openai import OpenAIPolicy
from etude.agent.policy.protocol import PolicyError, Request
from etude.core.events.log import EventLog
from etude.core.trace.message import Message
from etude.pipeline.recipe.recipe import Recipe
from etude.pipeline.run.limits import LIMITS, SUMMARY_SHARE

WINDOW_TOKENS = 128_000  # the default


class EndpointRefused(Exception):
    """The endpoint can't be asked; says why and what to do."""


@dataclass(frozen=True)
class Endpoint:
    """Who is asked (the server's address ".../v1", the model's name there), and how."""

    url: str
    model: str
    temperature: float = 1.0
    context_tokens: int | None = None  # the model's window; None: WINDOW_TOKENS
    key_env: str = "OPENAI_API_KEY"
    timeout_s: float = 300.0
    omit: tuple[str, ...] = ()
    max_tokens_field: str = "max_tokens"
    command: str = "etude bench run"

    def policy(self, retries: int) -> OpenAIPolicy:
        """The client."""
        return OpenAIPolicy(
            self.model,
            base_url=self.url,
            api_key_env=self.key_env,
            timeout_s=self.timeout_s,
            max_retries=retries,
            max_tokens_field=self.max_tokens_field,
            omit=self.omit,
            window_tokens=self.context_tokens,
            command=self.command,
        )

    def harness(self, recipe: Recipe) -> HarnessSettings:
        """The full preset, within the model's window."""
        window = self.context_tokens or WINDOW_TOKENS
        # A recipe's own trigger is that of its nano model, some hundred tokens.
        changes: dict[str, Any] = {
            **LIMITS,
            "temperature": self.temperature,
            "summary_trigger_tokens": int(SUMMARY_SHARE * window),
        }
        if self.context_tokens is not None:
            changes["max_tokens_per_turn"] = min(LIMITS["max_tokens_per_turn"], window // 5)
            changes["max_session_tokens"] = 4 * window
        return recipe.harness.model_copy(update=changes)


async def greet(endpoint: Endpoint, harness: HarnessSettings, stage: str, log: EventLog) -> None:
    """One short turn with the tools, so that a wrong address, key, name or field costs a second and one line.

    Raises EndpointRefused.
    """
    client = endpoint.policy(1)
    facts = TaskFacts("greeting", "Call the tool done with the message ok. Nothing else is to be done.")
    request = Request(
        "greeting",
        (Message("system", preset(harness.preset).system), Message("user", facts.instruction)),
        preset(harness.preset).schemas,
        max_tokens=harness.max_tokens_per_turn,
        temperature=harness.temperature,
        effort=harness.effort,
    )
    try:
        answer = await client.complete(request)
    except PolicyError as error:
        hint = "; a server may have to be started with tool calls enabled" if "tool" in str(error).lower() else ""
        raise EndpointRefused(f"{endpoint.model} did not answer a greeting: {error}{hint}") from error
    finally:
        await client.close()
    if answer.message is not None and not answer.message.calls:
        log.note(
            stage, f"{endpoint.model} answered the greeting without the tool call asked for: are tool calls enabled?"
        )
