"""Components of a group into rewards: the weights of the step, and the rule that behaviour never pays for failure.

    reward = outcome + w_kl kl + w_length length + penalties + bonuses

The rule. Penalties together take at most `cap` < 1 (beyond it all shrink by one factor), from solved and unsolved alike. A
bonus is paid to a solved rollout only (outcome >= 1), all of them together at most `cap`. So through behaviour a rollout of
outcome 0 has at most 0 and a solved one at least 1 - cap: none that failed outranks one that passed, and two outcomes that are
more than `cap` apart keep their order. KL and length are exact and outside the rule.

Worked example, cap 0.3: solved, 40 to-dos left at 0.02 and a judge's 0.9 at 0.1: 1 - 0.3 + 0.09 = 0.79. Failed, clean, 0.9 of
the judge: 0.

A component that a rollout has no value for (a judge was silent) is left out of its whole group: a number in its place would be
made up, and the baseline would take it for a difference.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from etude.core.files import append_lines
from etude.rl.rewards.library import components
from etude.rl.settings import RlSettings

ALWAYS = ("outcome", "kl", "length")
SOLVED = 1.0
# A rollout may lack these; every other component with a weight must have what it needs.
_RECORDED = ("quality", "judge", "wall_clock")


@dataclass(frozen=True)
class Mix:
    """What one step's rewards are made with. `weights`: of every component but the outcome, whose weight is 1; 0 is left out.
    `terms`: the settings that decide values (the length penalty's, the clock's), so that two mixes can be compared."""

    weights: dict[str, float]
    cap: float
    terms: dict[str, Any]


def mix_at(step: int, settings: RlSettings) -> Mix:
    """The mix that the settings give for `step`, counted from 0."""
    weights: dict[str, float] = {"kl": settings.kl_beta, "length": settings.length.scale, **settings.rewards.weights}
    for change in settings.rewards.changes:
        if change.from_step <= step:
            weights |= change.weights
    length = settings.length.model_dump(exclude={"scale"})
    terms = {"length": length, "wall_clock_s": settings.rewards.wall_clock_s}
    return Mix({name: weight for name, weight in sorted(weights.items()) if weight}, settings.rewards.cap, terms)


def ever_weighed(name: str, settings: RlSettings) -> bool:
    """Whether a component has a weight at any step of the run."""
    steps = [0, *(change.from_step for change in settings.rewards.changes)]
    return any(name in mix_at(step, settings).weights for step in steps)


def mix_rewards(group: Sequence[Mapping[str, float]], mix: Mix) -> list[dict[str, float]]:
    """The parts of each rollout's reward, which is their sum. `group`: what `library.measured` gave for each of its rollouts.

    All rollouts have the same parts, 0 where a component is left out. Raises ValueError where a weighed component lacks what it needs.
    """
    return [_parts(values, mix, _silent(group, mix)) for values in group]


def _silent(group: Sequence[Mapping[str, float]], mix: Mix) -> set[str]:
    silent = {name for name in mix.weights for values in group if name not in values}
    if broken := sorted(silent - set(_RECORDED)):
        needs = {one.name: one.needs for one in components(mix.weights)}
        raise ValueError(
            f"the reward weighs {broken[0]}, but a rollout has no value for it (it needs "
            f"{', '.join(needs[broken[0]]) or 'a scored reference'}): set its weight to 0 or attempt with our harness"
        )
    return silent


def _parts(values: Mapping[str, float], mix: Mix, silent: set[str]) -> dict[str, float]:
    parts = {name: 0.0 for name in ALWAYS} | {"outcome": values["outcome"]}
    penalties: dict[str, float] = {}
    bonuses: dict[str, float] = {}
    for one in components(mix.weights):
        if one.name not in mix.weights:
            continue
        part = 0.0 if one.name in silent else mix.weights[one.name] * values[one.name]
        if one.kind == "exact":
            parts[one.name] = part
        elif one.kind == "penalty":
            penalties[one.name] = part
        else:
            bonuses[one.name] = part if values["outcome"] >= SOLVED else 0.0
    return parts | _bounded(penalties, mix.cap) | _bounded(bonuses, mix.cap)


def _bounded(parts: dict[str, float], cap: float) -> dict[str, float]:
    """The same parts, shrunk by one factor where their sum is beyond `cap` in size."""
    total = abs(sum(parts.values()))
    return {name: part * cap / total for name, part in parts.items()} if total > cap else parts


# `mixed.jsonl`: with which weights every step's rewards were made, written before the step is trained (promise 6).
#
# A resumed run mixes a step that is written here as it was. Settings that say otherwise are refused: they may change
# what comes, not what was.


MIXED = "mixed.jsonl"  # in the stage's folder


class RewardsChanged(ValueError):
    """The settings mix a step otherwise than it was mixed."""


class MixedFile:
    """One line a step. A line torn by a kill belongs to a step that was not trained: it is cut off."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._steps = _read(path)

    def at(self, step: int, settings: RlSettings) -> Mix:
        """How `step` is mixed, on disk when this returns. Raises RewardsChanged, OSError."""
        mix = mix_at(step, settings)
        if (before := self._steps.get(step)) is not None:
            if _plain(mix) != before:
                raise RewardsChanged(
                    f"step {step} was mixed with {_mix_text(before)}, the settings say {_mix_text(_plain(mix))}: put them back, and give "
                    f"changes to rl.rewards.schedule with from_step {max(self._steps) + 1} or later"
                )
            return mix
        line = json.dumps({"step": step, **_plain(mix)}).encode() + b"\n"
        append_lines(self.path, line, durable=True)
        self._steps[step] = _plain(mix)
        return mix


def check_mixed(path: Path, settings: RlSettings) -> None:
    """Raises RewardsChanged if the settings mix any step otherwise than is written."""
    known = MixedFile(path)
    for step in sorted(_read(path)):
        known.at(step, settings)


def _plain(mix: Mix) -> dict[str, object]:
    """As JSON reads it back."""
    return json.loads(json.dumps(asdict(mix)))


def _mix_text(mix: dict[str, object]) -> str:
    return json.dumps(mix, sort_keys=True)


def _read(path: Path) -> dict[int, dict[str, object]]:
    if not path.exists():
        return {}
    data = path.read_bytes()
    whole = data.rfind(b"\n") + 1
    if whole < len(data):
        with open(path, "r+b") as file:
            file.truncate(whole)
    try:
        rows = [json.loads(line) for line in data[:whole].splitlines()]
        return {row.pop("step"): row for row in rows}
    except (ValueError, KeyError, AttributeError, RecursionError) as error:
        raise ValueError(f"{path} holds a line that is no mix ({error}); remove the rl folder to start over") from error
