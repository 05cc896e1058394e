"""Options for running policies: what the user sets once, and how it applies in a suite."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from etude.agent.harness.settings import HarnessSettings
from etude.core.events.log import EventLog
from etude.core.trace.entry import Effort
from etude.evaluate.bench.runs.recovery import TRIGGER
from etude.evaluate.bench.suites.suite import Suite
from etude.pipeline.recipe.recipe import Recipe


class UnknownPolicy(Exception):
    """No policy has this name, or the policy can't be used this way; the message lists the known ones."""


@dataclass(frozen=True)
class PolicyOptions:
    """How policies are run, apart from what the suite pins. `preset` None: the default of the kind of policy. `agents`: names of
    others than our harness that attempt the tasks too; "" is our own."""

    efforts: tuple[Effort, ...] = ("medium",)
    temperature: float = 1.0
    preset: str | None = None
    context_tokens: int | None = None
    key_env: str = "OPENAI_API_KEY"
    timeout_s: float = 300.0
    omit: tuple[str, ...] = ()
    max_tokens_field: str = "max_tokens"
    concurrency: int = 4
    agents: tuple[str, ...] = ("",)
    summaries: bool = True  # False: sessions are never summed up (`bench.targeted.recovery`)
    command: str = "etude bench run"  # what a remedy names


@dataclass(frozen=True)
class SuiteContext:
    """What all participants of a suite share."""

    suite: Suite
    recipe: Recipe
    options: PolicyOptions
    log: EventLog

    def command_line_settings(self, effort: Effort) -> dict[str, Any]:
        """What was said on the command line."""
        preset = {} if self.options.preset is None else {"preset": self.options.preset}
        return {"effort": effort, "temperature": self.options.temperature, **preset}

    def pin_settings(self, base: HarnessSettings, chosen: dict[str, Any]) -> HarnessSettings:
        """The suite's limits over the kind's own, and over both what was asked for. The web stays closed."""
        limits = self.suite.manifest.apply_limits(base).model_dump()
        arm = {} if self.options.summaries else {TRIGGER: 0}
        return HarnessSettings.model_validate(limits | chosen | arm | {"web": False})


@dataclass(frozen=True)
class PolicyArgument:
    """A policy's word on the command line, at one effort, by one agent. `name` is the user's name for it, if any."""

    word: str
    name: str
    what: str
    effort: Effort
    agent: str = ""
