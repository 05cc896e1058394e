"""Reports what a run waits for: after `PATIENCE_S`, then each time that the wait has doubled, so that no hang is silent. Pure.

The controller says what the trainer does (`TrainerActivity`). The rollout states say what each rollout does and where. Worked example: "step 12
waits 43 s for group 37, due now: 37.2 (task-81, attempt 1) rolling at host-3 for 41 s; 37.5 (task-81, attempt 0) grading for 12 s".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from etude.rl.rollout_state import RolloutPhase, RolloutState

PATIENCE_S = 10.0
NAMED = 3  # rollouts that one line names


@dataclass(frozen=True)
class TrainerActivity:
    """What the trainer is at since `since_s`. `group`: whom it waits for, if it waits; `due`: whether the step can't do without that one;
    `aside`: groups that finished since the last batch and are not trained."""

    what: str  # "step 12", "serving version 13"
    since_s: float
    group: int | None = None
    due: bool = False
    aside: int = 0


class Watchdog:
    """Tells each wait a few times, however long it lasts."""

    def __init__(self, patience_s: float = PATIENCE_S) -> None:
        self._patience_s = patience_s
        self._reported: tuple[str, float] = ("", 0.0)
        self._next_s = patience_s

    def look(self, doing: TrainerActivity, lives: Sequence[RolloutState], now_s: float) -> str | None:
        """What is to be said now, if anything."""
        if self._reported != (doing.what, doing.since_s):
            self._reported, self._next_s = (doing.what, doing.since_s), self._patience_s
        waited_s = now_s - doing.since_s
        if waited_s < self._next_s:
            return None
        self._next_s = 2 * waited_s
        return _said(doing, lives, waited_s, now_s)


def _said(doing: TrainerActivity, lives: Sequence[RolloutState], waited_s: float, now_s: float) -> str:
    if doing.group is None:
        return f"{doing.what} takes {waited_s:.0f} s so far"
    late = [life for life in lives if life.slot.group == doing.group and life.phase < RolloutPhase.SCORED]
    named = "; ".join(_one(life, now_s) for life in late[:NAMED])
    more = f" and {len(late) - NAMED} more" if len(late) > NAMED else ""
    due = ", due now" if doing.due else ""
    aside = f", {doing.aside} set aside since the last batch" if doing.aside else ""
    return f"{doing.what} waits {waited_s:.0f} s for group {doing.group}{due}{aside}: {named}{more}"


def _one(life: RolloutState, now_s: float) -> str:
    at = f" at {life.where}" if life.where else ""
    slot = life.slot
    return f"{slot.group}.{slot.member} ({slot.task_id}, attempt {slot.attempt}) {life.phase.name.lower()}{at} for {now_s - life.since_s:.0f} s"
