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
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from etude.rl.rewards.component import Kind
from etude.rl.rewards.library import COMPONENTS

# Whether a figure of the run has shifted: a two-sided CUSUM against the figure's own past (Page 1954), made robust.
# Pure.
#
# The first `REFERENCE` values give median m and scale s = 1.4826 MAD (at least a floor, for figures that hardly
# move). Each later value x adds z = (x - m) / s, clipped to +-CLIP so that one wild step is no shift:
#
#     up <- max(0, up + z - SLACK)        down <- max(0, down - z - SLACK)        a shift when either exceeds LIMIT
#
# After a shift, wanted or not, the reference is learned again: a run that has improved is held to what it reached.
#
# Measured by simulation (`tests/rl/test_rl_rewards_drift.py`): without a shift fewer than 1 figure in 100 alarms
# within 100 steps, for normal noise and for noise of heavy tails (Student's t, 3 degrees): 0.4 % and 0.7 %. A shift
# of 3 standard deviations is found within 6 steps half of the time and within 9 in nine of ten; one of 2 within 13
# half of the time. Noise that is correlated from step to step alarms more often.


REFERENCE = 30
SLACK = 1.25
LIMIT = 10.0
CLIP = 4.0
# Values that `recent` is the mean of.
RECENT = 5
Shift = Literal["up", "down"]


class Drift:
    """One figure. `floor`: least scale, in the figure's unit; `relative`: least scale as a share of the median."""

    def __init__(self, floor: float, relative: float = 0.0) -> None:
        self._floor = floor
        self._relative = relative
        self._reference: list[float] = []
        self._recent: deque[float] = deque(maxlen=RECENT)
        self._up = self._down = 0.0
        self._median = self._scale = float("nan")

    def feed(self, value: float) -> Shift | None:
        """Take the next value; which way the figure has shifted, at the step where that is found."""
        self._recent.append(value)
        if len(self._reference) < REFERENCE:
            self._reference.append(value)
            if len(self._reference) == REFERENCE:
                self._learn()
            return None
        z = max(-CLIP, min(CLIP, (value - self._median) / self._scale))
        self._up = max(0.0, self._up + z - SLACK)
        self._down = max(0.0, self._down - z - SLACK)
        if max(self._up, self._down) <= LIMIT:
            return None
        shift: Shift = "up" if self._up > self._down else "down"
        self._up = self._down = 0.0
        self._reference = []
        return shift

    @property
    def reference(self) -> float:
        """The median that the figure is held against (nan until it is known)."""
        return self._median

    @property
    def recent(self) -> float:
        """Mean of the last values."""
        return float(np.mean(self._recent)) if self._recent else float("nan")

    @property
    def level(self) -> float:
        """How many scales the recent values are above the reference; 0 until it is known."""
        return (self.recent - self._median) / self._scale if np.isfinite(self._median) else 0.0

    def _learn(self) -> None:
        values = np.array(self._reference)
        self._median = float(np.median(values))
        spread = 1.4826 * float(np.median(np.abs(values - self._median)))
        self._scale = max(spread, self._floor, self._relative * abs(self._median))


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
        self._shorter_step = -REFERENCE

    def look(self, values: Mapping[str, float]) -> list[Alarm]:
        """What the figures of the next step (`metrics.py`) give cause to say."""
        self._step += 1
        found: list[Alarm] = []
        for name, value in sorted(watched_figures(values).items()):
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
            found.append(
                Alarm("reward_without_outcome", f"{self._change_text('extra')}, {self._change_text('pass_rate')}")
            )
            del self._shifted["extra"]
        shorter, worse = self._lately("tokens", "down"), self._lately("pass_rate", "down")
        if self._step - self._shorter_step < REFERENCE:  # the references are still the old ones
            return found
        if (shorter and (worse or self._level("pass_rate") < -FLAT)) or (worse and self._level("tokens") < -FLAT):
            found.append(Alarm("shorter_and_worse", f"{self._change_text('tokens')}, {self._change_text('pass_rate')}"))
            self._shorter_step = self._step
        return found

    def _lately(self, name: str, shift: Shift) -> bool:
        before = self._shifted.get(name)
        return before is not None and before[0] == shift and self._step - before[1] < TOGETHER

    def _rising(self, name: str) -> bool:
        return self._lately(name, "up") or self._level(name) > FLAT

    def _level(self, name: str) -> float:
        return self._drifts[name].level if name in self._drifts else 0.0

    def _change_text(self, name: str) -> str:
        drift = self._drifts.get(name)
        return f"{name} {drift.reference:.3g} -> {drift.recent:.3g}" if drift else f"{name} is not known"


def watched_figures(values: Mapping[str, float]) -> dict[str, float]:
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
