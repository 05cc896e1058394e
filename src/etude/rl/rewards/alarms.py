"""Alarms over a step's figures, each with its cause by name. Pure: the same figures in the same order give the same alarms, so a
resumed run reads them back from `steps.jsonl` and goes on.

    reward_without_outcome   the rest of the reward without the outcome shifts up while the pass rate is where it was
    tool_takes_over          a tool's share of the calls shifts up to more than half
    tool_collapses           a tool's share of the calls shifts down to less than half of what it was
    shorter_and_worse        sampled tokens a rollout shift down while the pass rate falls, or the other way round
    broken_calls             broken calls a turn shift up
    component                one component's own value, before its weight, shifts for the worse
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from etude.rl.rewards.component import Kind
from etude.rl.rewards.drift import REFERENCE, Drift, Shift
from etude.rl.rewards.library import COMPONENTS

Cause = Literal[
    "reward_without_outcome", "tool_takes_over", "tool_collapses", "shorter_and_worse", "broken_calls", "component"
]
# Scales within which the recent pass rate counts as where it was; the mean of 5 values has a noise of 0.45.
FLAT = 1.0
# Steps within which two shifts belong together.
TOGETHER = 10
# Least scales: figures that hardly move must not alarm at their first tremor. Shares and rates in their own unit.
RATE_FLOOR, REWARD_FLOOR, RELATIVE_FLOOR = 0.02, 0.005, 0.05
_KINDS: dict[str, Kind] = {one.name: one.kind for one in COMPONENTS}


@dataclass(frozen=True)
class Alarm:
    """`text` says which figure, from where to where."""

    cause: Cause
    text: str


class AlarmMonitor:
    """Fed one step's figures after another."""

    def __init__(self) -> None:
        self._drifts: dict[str, Drift] = {}
        self._shifted: dict[str, tuple[Shift, int]] = {}  # figure -> its last shift and when
        self._step = 0
        self._told_shorter = -REFERENCE

    def look(self, values: Mapping[str, float]) -> list[Alarm]:
        """What the figures of the next step (`metrics.py`) give cause to say."""
        self._step += 1
        found: list[Alarm] = []
        for name, value in sorted(watched(values).items()):
            if not math.isfinite(value):  # neither a shift nor a reference
                continue
            drift = self._drifts.setdefault(name, _drift(name))
            shift = drift.feed(value)
            if shift is not None:
                self._shifted[name] = (shift, self._step)
                found += self._alone(name, shift, drift)
        return [*found, *self._together()]

    def _alone(self, name: str, shift: Shift, drift: Drift) -> list[Alarm]:
        text = f"{name} went from {drift.reference:.3g} to {drift.recent:.3g}"
        if name.startswith("share_"):
            if shift == "up" and drift.recent > 0.5:
                return [Alarm("tool_takes_over", text)]
            if shift == "down" and drift.recent < drift.reference / 2:
                return [Alarm("tool_collapses", text)]
        if name == "broken_per_turn" and shift == "up":
            return [Alarm("broken_calls", text)]
        worse = name.startswith("raw_") and shift == "down"
        return [Alarm("component", text)] if worse else []

    def _together(self) -> list[Alarm]:
        found: list[Alarm] = []
        if self._lately("extra", "up") and not self._rising("pass_rate"):
            found.append(Alarm("reward_without_outcome", f"{self._told('extra')}, {self._told('pass_rate')}"))
            del self._shifted["extra"]
        shorter, worse = self._lately("tokens", "down"), self._lately("pass_rate", "down")
        if self._step - self._told_shorter < REFERENCE:  # the references are still the old ones
            return found
        if (shorter and (worse or self._level("pass_rate") < -FLAT)) or (worse and self._level("tokens") < -FLAT):
            found.append(Alarm("shorter_and_worse", f"{self._told('tokens')}, {self._told('pass_rate')}"))
            self._told_shorter = self._step
        return found

    def _lately(self, name: str, shift: Shift) -> bool:
        before = self._shifted.get(name)
        return before is not None and before[0] == shift and self._step - before[1] < TOGETHER

    def _rising(self, name: str) -> bool:
        return self._lately(name, "up") or self._level(name) > FLAT

    def _level(self, name: str) -> float:
        return self._drifts[name].level if name in self._drifts else 0.0

    def _told(self, name: str) -> str:
        drift = self._drifts.get(name)
        return f"{name} {drift.reference:.3g} -> {drift.recent:.3g}" if drift else f"{name} is not known"


def watched(values: Mapping[str, float]) -> dict[str, float]:
    """The figures that are watched: `extra` is the reward without the outcome, `tokens` are sampled ones a rollout."""
    found = {name: values[name] for name in ("pass_rate", "broken_per_turn") if name in values}
    found |= {name: value for name, value in values.items() if name.startswith("share_")}
    found |= {
        f"raw_{name}": values[f"raw_{name}"]
        for name, kind in _KINDS.items()
        if f"raw_{name}" in values and kind != "exact"
    }
    if "reward" in values and "reward_outcome" in values:
        found["extra"] = values["reward"] - values["reward_outcome"]
    if values.get("rollouts") and "sampled_tokens" in values:
        found["tokens"] = values["sampled_tokens"] / values["rollouts"]
    return found


def _drift(name: str) -> Drift:
    if name == "tokens":
        return Drift(1.0, RELATIVE_FLOOR)
    if name == "extra":
        return Drift(REWARD_FLOOR)
    return Drift(RATE_FLOOR, RELATIVE_FLOOR)
