"""All components, in the order in which they are logged."""

from __future__ import annotations

from etude.rl.length import QUANTITIES, effort, penalty
from etude.rl.rewards.behaviour import BEHAVIOUR
from etude.rl.rewards.component import Component, Measure, RewardInput
from etude.rl.rewards.divergence import KL


def _outcome(subject: RewardInput) -> float:
    return subject.rollout.rewards["outcome"]


def _length(subject: RewardInput) -> float:
    """-C(x), times the factor of the effort that was asked for; a rollout that does not say was made at medium."""
    settings = subject.settings.length
    factor = getattr(settings.effort, subject.rollout.info.get("effort", "medium"))
    return -factor * penalty(effort(subject.rollout.counters, settings.weights), settings)


def _wall_clock(subject: RewardInput) -> float | None:
    """-t / (t + half): the agent's seconds as they were recorded, so that a resume has the same."""
    seconds = subject.rollout.info.get("seconds", {}).get("agent")
    return None if seconds is None else -seconds / (seconds + subject.settings.rewards.wall_clock_s)


def _recorded(name: str) -> Measure:
    """Measured when the attempt was made and kept with the rollout (`rl/attempt_rewards.py`)."""
    kind = "bonus" if name == "judge" else "penalty"
    return Measure(name, kind, (), lambda subject: subject.rollout.rewards.get(name))


COMPONENTS: tuple[Component, ...] = (
    Measure("outcome", "exact", (), _outcome),
    KL,
    Measure("length", "exact", QUANTITIES, _length),
    *BEHAVIOUR,
    _recorded("quality"),
    _recorded("judge"),
    Measure("wall_clock", "penalty", (), _wall_clock),
)


def measured(subject: RewardInput) -> dict[str, float]:
    """Every component that this rollout has a value for, before any weight."""
    found: dict[str, float] = {}
    for one in COMPONENTS:
        if all(name in subject.rollout.counters for name in one.needs):
            value = one.value(subject)
            if value is not None:
                found[one.name] = value
    return found
