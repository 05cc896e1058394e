"""Who is asked in a bench of an endpoint, how, and at what price: a description, without the rooms that do the asking."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from etude.harness.settings import HarnessSettings
from etude.policy.meter import Spent
from etude.policy.openai import OpenAIPolicy
from etude.recipe.recipe import Recipe

Suite = Literal["exercises", "real"]
SUITES: tuple[Suite, ...] = ("exercises", "real")
# The nano model's limits would starve a large model: it thinks in prose, reads whole files and takes more turns.
LIMITS = {
    "preset": "full",
    "max_turns": 40,
    "max_tokens_per_turn": 4096,
    "max_session_tokens": 120_000,
    "max_tool_lines": 200,
    "max_tool_bytes": 16_000,
    "max_matches": 50,
    "tool_timeout_s": 30.0,
    "test_timeout_s": 120.0,
}


@dataclass(frozen=True)
class Prices:
    """Dollars per million tokens; None where the person gave none, hence no dollars in the report."""

    input: float | None = None
    output: float | None = None
    cached: float | None = None  # None: as other input

    def dollars(self, spent: Spent) -> float | None:
        """What a sum of turns cost; None without prices or where the endpoint left usage out."""
        if self.input is None or self.output is None or spent.unreported:
            return None
        cached = self.input if self.cached is None else self.cached
        fresh = spent.input_tokens - spent.cached_tokens
        return (fresh * self.input + spent.cached_tokens * cached + spent.output_tokens * self.output) / 1e6


@dataclass(frozen=True)
class Endpoint:
    """Who is asked (the server's address ".../v1", the model's name there), how much, and how."""

    url: str
    model: str
    suites: tuple[Suite, ...] = SUITES
    tasks: int | None = None  # most tasks of each suite; None: 24 exercises, all real bugs
    passes: int = 1
    concurrency: int = 4
    temperature: float = 1.0
    context_tokens: int | None = None  # the model's window; sessions are summarized at 60% of it
    key_env: str = "OPENAI_API_KEY"
    timeout_s: float = 300.0
    attempt_limit_s: float = 3600.0
    omit: tuple[str, ...] = ()
    max_tokens_field: str = "max_tokens"
    prices: Prices = field(default_factory=Prices)

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
        )

    def harness(self, recipe: Recipe) -> HarnessSettings:
        """The full preset, within the model's window."""
        changes: dict[str, Any] = {**LIMITS, "temperature": self.temperature}
        if self.context_tokens is not None:
            changes["summary_trigger_tokens"] = int(0.6 * self.context_tokens)
            changes["max_tokens_per_turn"] = min(LIMITS["max_tokens_per_turn"], self.context_tokens // 5)
            changes["max_session_tokens"] = 4 * self.context_tokens
        return recipe.harness.model_copy(update=changes)
