"""All components, in the order in which they are logged.

Behaviour comes from the harness' counters (`docs/counters.md`). Unfinished to-dos, thinking left in comments and the collapse to the
terminal are those that the report names; the weights are ours. Units: items, lines, reads and calls are counted; an untested last edit is
one; shell_only is a share of the calls.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, get_args

import numpy as np

from etude.core.plugins import PluginError, import_object, is_import_path
from etude.core.trace.segment import Segment
from etude.rl.rewards.component import Component, Kind, Measure, RewardInput
from etude.rl.settings import EffortWeights, LengthPenalty

# The nonlinear length penalty of the Composer 2 technical report.
#
#     C_{k,q}(x) = ((1 + k x)^(1 - q) - 1) / (k (1 - q))        C(0) = 0, C'(0) = 1, C'(x) = (1 + k x)^(-q)
#
# x is a weighted sum of six quantities of the rollout. Concave: on an easy task each extra turn is felt, in a long
# session it is not. q = 0 is linear, q -> 1 is ln(1 + k x) / k, q > 1 is bounded by 1 / (k (q - 1)).


QUANTITIES = tuple(EffortWeights.model_fields)  # the counters' names are the weights' names


def effort(counters: Mapping[str, float], weights: EffortWeights) -> float:
    """x: the weighted sum of the six quantities; a missing counter is an error, since 0 would reward its absence."""
    missing = [name for name in QUANTITIES if name not in counters]
    if missing:
        raise ValueError(f"the rollout has no counter {', '.join(missing)}; it has {', '.join(sorted(counters))}")
    return sum(getattr(weights, name) * counters[name] for name in QUANTITIES)


def penalty(x: float, settings: LengthPenalty) -> float:
    """C(x) >= 0 for x >= 0. With u = (1 - q) ln(1 + k x): C = ln(1 + k x) / k * (e^u - 1) / u, exact as u -> 0."""
    if x < 0:
        raise ValueError(f"effort {x} is negative")
    log = math.log1p(settings.k * x)
    u = (1.0 - settings.q) * log
    return log / settings.k * (math.expm1(u) / u if u != 0.0 else 1.0)


# The KL to the reference as a reward: minus the sum over sampled tokens of log p_sampled - log p_reference, the k1
# estimator (Composer 2 technical report).
#
# It sits in the reward because differentiating k1 as a loss has zero expected gradient. A sum over the whole chain of
# segments, never a mean: the sum is the unbiased estimate of the sequence's KL, and a mean would reward length.


def k1_sum(segments: Sequence[Segment], reference: Sequence[np.ndarray]) -> float:
    """Sum over sampled tokens of log p_sampled - log p_reference; `reference[i]` is (T_i,) for segment i. Nats."""
    total = 0.0
    for segment, logp in zip(segments, reference, strict=True):
        total += float((segment.logprobs[segment.sampled].astype(np.float64) - logp[segment.sampled]).sum())
    return total


def _kl(subject: RewardInput) -> float | None:
    return None if subject.k1 is None else -subject.k1


KL = Measure("kl", "exact", (), _kl)


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


def components(names: Iterable[str]) -> tuple[Component, ...]:
    """The built-in components, and those of `names` that are import paths. Raises PluginError."""
    return (*COMPONENTS, *(custom_component(name) for name in names if is_import_path(name)))


@cache
def custom_component(path: str) -> Component:
    """The component at an import path, which is its name too. Raises PluginError where it is no `Component`."""
    found = import_object(path)
    kind: Any = getattr(found, "kind", None)
    needs: Any = getattr(found, "needs", None)
    if kind not in get_args(Kind):
        raise PluginError(f"{path}: its kind is {kind!r}; a reward component has one of {', '.join(get_args(Kind))}")
    if not isinstance(needs, tuple) or not all(isinstance(one, str) for one in needs):
        raise PluginError(f"{path}: its needs are {needs!r}; a reward component has a tuple of counters' names")
    if not callable(getattr(found, "value", None)):
        raise PluginError(f"{path} has no method value(subject); see docs/extending.md")
    return Measure(path, kind, needs, lambda subject: _checked(path, kind, found.value(subject)))


def _checked(path: str, kind: Kind, value: object) -> float | None:
    """Raises ValueError for a value that its kind does not allow."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{path} gave {value!r}; a reward component gives a number or None")
    if (kind == "penalty" and value > 0) or (kind == "bonus" and value < 0):
        raise ValueError(f"{path} gave {value:g}; a {kind} is at {'most' if kind == 'penalty' else 'least'} 0")
    return float(value)


def measure_components(subject: RewardInput) -> dict[str, float]:
    """Every component that this rollout has a value for, before any weight."""
    found: dict[str, float] = {}
    for one in components(subject.settings.rewards.custom):
        if all(name in subject.rollout.counters for name in one.needs):
            value = one.value(subject)
            if value is not None:
                found[one.name] = value
    return found
