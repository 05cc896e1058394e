"""One session of the harness that ends with an answer of a given form: what is malformed goes back with the reason.

The agent is the harness' own (promise 1), with its budget counted; the answer is its last message. A session that ends otherwise (turns,
tokens, seconds or dollars used up, malformed once too often) has no answer, and says why.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from etude.agent.chat.renderer import Renderer
from etude.agent.harness.agent import build_agent
from etude.agent.harness.approval import Approver
from etude.agent.harness.dependencies import AgentDependencies
from etude.agent.harness.header import session_header
from etude.agent.harness.inbox import Inbox
from etude.agent.harness.observer import NullObserver
from etude.agent.harness.settings import HarnessSettings
from etude.agent.harness.task_facts import TaskFacts
from etude.agent.policy.protocol import Policy, PolicyError
from etude.core.trace.entry import SessionHeader
from etude.core.trace.session import Recorder
from etude.sandbox.errors import InfraError
from etude.sandbox.protocol import Operations
from etude.tasks.generate.install.agents.answers import MalformedAnswer
from etude.tasks.generate.install.agents.spending import Bill, Dollars, MeteredPolicy, SessionLimits

T = TypeVar("T")
REPEATS = 3  # malformed answers that are sent back
WARNED = 5  # turns before the end
BEYOND = 1_000_000  # tokens
# Tools by what they do; left out of a session that only reads.
ACTS = ("write", "edit", "multi_edit", "apply_patch", "delete", "shell", "job_output", "job_kill", "lints")
UNPRICED: Dollars = lambda usage: None


class NoAnswer(Exception):
    """The session ended without one; says how."""


@dataclass(frozen=True)
class Model:
    """The model that is asked, with the harness it is asked through. `record` makes the recorder of a session."""

    policy: Policy
    settings: HarnessSettings
    renderer: Renderer | None = None
    dollars: Dollars = UNPRICED
    limits: SessionLimits = SessionLimits()
    bill: Bill = field(default_factory=Bill)
    record: Callable[[SessionHeader], Recorder] = Recorder
    name: str = ""

    @property
    def label(self) -> str:
        return self.name or self.policy.name


class _Answers(Inbox, Generic[T]):
    """Speaks to the agent when it has answered: that it is done, or what is wrong with what it said."""

    def __init__(self, parse: Callable[[str], T], meter: MeteredPolicy) -> None:
        super().__init__()
        self.answer: T | None = None
        self.failed = ""
        self._parse, self._meter, self._malformed, self._wrong = parse, meter, 0, ""

    def heard(self, reason: str, message: str) -> None:
        if reason not in ("message", "done"):
            self.failed = self._meter.over or f"its session ended by {reason}"
            return
        try:
            self.answer = self._parse(message)
        except MalformedAnswer as error:
            self._malformed += 1
            self._wrong = str(error)
            self.failed = f"no answer of the asked form: {error}" if self._malformed > REPEATS else ""

    async def next_request(self) -> str | None:
        if self.answer is not None or self.failed:
            self.close()
            return None
        return f"That answer can't be taken: {self._wrong}. Answer again, with the whole JSON object and nothing else."

    def take_steering(self) -> list[str]:
        if self._meter.turns_left != WARNED:
            return super().take_steering()
        return [
            *super().take_steering(),
            f"You have {WARNED} turns left. Give your answer, the JSON object, before they end.",
        ]


class _Ear(NullObserver):
    def __init__(self, answers: _Answers) -> None:
        self._answers = answers

    def idle(self, reason: str, message: str) -> None:
        self._answers.heard(reason, message)


async def interview(
    model: Model, sandbox: Operations, facts: TaskFacts, parse: Callable[[str], T], project: str, *, reads_only: bool
) -> T:
    """Raises NoAnswer, InfraError (also for a policy that can't be reached)."""
    settings = _reading(model.settings) if reads_only else model.settings
    # Beyond the meter's, which are reached first and count what was paid for.
    limits = {"max_turns": model.limits.turns + 1, "max_session_tokens": model.limits.tokens + BEYOND}
    settings = settings.model_copy(update=limits)
    meter = MeteredPolicy(model.policy, model.limits, model.bill.of(project), model.dollars)
    answers = _Answers(parse, meter)
    header = session_header(settings, model.policy, facts, renderer=model.renderer, session_id=facts.task_id)
    agent = build_agent(
        settings,
        meter,
        AgentDependencies(
            sandbox,
            facts,
            renderer=model.renderer,
            recorder=model.record(header),
            seed=0,
            inbox=answers,
            approver=Approver("writes" if reads_only else "never"),
            watcher=_Ear(answers),
        ),
    )
    try:
        await agent.run()
    except PolicyError as error:
        raise InfraError(f"{model.label} can't be asked: {error}") from error
    if answers.answer is None:
        raise NoAnswer(f"{model.label} gave none: {answers.failed}")
    return answers.answer


def _reading(settings: HarnessSettings) -> HarnessSettings:
    """Without tools that act, where they can be left out; the others have them refused by the approver."""
    if settings.preset in ("nano", "full"):
        return settings
    return settings.model_copy(update={"tools_off": (*settings.tools_off, *ACTS), "lint_delta_s": 0.0})
