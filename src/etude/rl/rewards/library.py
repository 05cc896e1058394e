"""All components, in the order in which they are logged.

Behaviour comes from the harness' counters (`docs/counters.md`). Unfinished to-dos, thinking left in comments and the collapse to the
terminal are those that the report names; the weights are ours. Units: items, lines, reads and calls are counted; an untested last edit is
one; shell_only is a share of the calls.
"""

from __future__ import annotations

from etude.rl.length import QUANTITIES, effort, penalty
from etude.rl.rewards.component import Component, Measure, RewardInput
from etude.rl.rewards.divergence import KL


def _minus(name: str, *counters: str) -> Measure:
    return Measure(name, "penalty", counters, lambda subject: -sum(subject.counter(one) for one in counters))


def _untested(subject: RewardInput) -> float:
    return -float(subject.counter("edits_untested") > 0)


def _shell_only(subject: RewardInput) -> float:
    """Share of the calls that are shell commands which a tool of the preset is for. To build and to test by the shell is no fault."""
    calls = subject.counter("calls")
    return -subject.counter("shell_for_tool") / calls if calls else 0.0


def _added_lint(subject: RewardInput) -> float:
    return -max(0.0, subject.counter("lint_delta"))


BEHAVIOUR = (
    _minus("unfinished_todos", "todos_unfinished"),
    Measure("untested_edit", "penalty", ("edits_untested",), _untested),
    _minus("thought_comments", "thought_comments"),
    Measure("shell_only", "penalty", ("shell_for_tool", "calls"), _shell_only),
    _minus("repeated_reads", "repeated_reads"),
    _minus("broken_calls", "malformed_calls", "malformed_turns"),
    Measure("added_lint", "penalty", ("lint_delta",), _added_lint),
)


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
    """Measured when the attempt was made and kept with the rollout (`rl/attempts.py`)."""
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
