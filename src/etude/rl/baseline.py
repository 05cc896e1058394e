"""What a reward is held against: the mean of its group, or what its category earned so far.

A group of one has no mean but its own reward. Its baseline is the running mean of its category (debugging, features, ...), from earlier steps
alone: a baseline that holds the rollout's own reward would shrink its gradient, one that holds others' only leaves its expectation as it
is (Williams 1992, REINFORCE with a baseline). A category that no earlier step has seen is held against the rest of the batch in it,
and where there is no rest a rollout teaches nothing but what its category's mean is.

    mean <- mean + (reward - mean) / min(n, horizon)        n rewards seen, this one among them

Worked example, horizon 100, the first step's rewards 1, 0, 0 in one category: held against 0, 0.5, 0.5; advantages 1, -0.5, -0.5; the mean
is 1/3 after it, and a reward of 1 at the next step has the advantage 2/3.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, cast

from etude.core.plugins import PluginError, import_object
from etude.core.trace.segment import Rollout
from etude.rl.advantage import advantages

# (rewards, group of each rollout, rollouts) of a step -> one advantage for each rollout
AdvantageFunction = Callable[[Sequence[float], Sequence[int], Sequence[Rollout]], list[float]]


@cache
def custom_advantages(path: str) -> AdvantageFunction:
    """The function at an import path. Raises PluginError."""
    found: Any = import_object(path)
    if not callable(found) or isinstance(found, type):
        raise PluginError(
            f"{path} is {'a class' if isinstance(found, type) else type(found).__name__}; rl.baseline needs a function "
            "(docs/extending/advantages.md)"
        )
    return cast(AdvantageFunction, found)


def from_function(
    path: str, rewards: Sequence[float], groups: Sequence[int], rollouts: Sequence[Rollout]
) -> list[float]:
    """What the function at an import path gives. Raises ValueError where that is no finite number for each rollout."""
    found: Any = custom_advantages(path)(list(rewards), list(groups), list(rollouts))
    if not isinstance(found, Sequence) or len(found) != len(rewards):
        size = len(found) if isinstance(found, Sequence) else type(found).__name__
        raise ValueError(
            f"{path} gave {size} advantages for {len(rewards)} rollouts; it has to give one each, in order"
        )
    for value in found:
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise ValueError(f"{path} gave the advantage {value!r}; an advantage is a finite number")
    return [float(value) for value in found]


@dataclass
class RunningMeans:
    """By category what its rewards were on average; part of the trainer's state, so that a resume holds against the same."""

    horizon: int
    seen: dict[str, int] = field(default_factory=dict)
    means: dict[str, float] = field(default_factory=dict)

    def advantages(self, rewards: Sequence[float], categories: Sequence[str]) -> list[float]:
        """One per rollout, in order; the means take the rewards in behind that, in the same order. A reward that is not finite has
        advantage 0 and moves no mean."""
        if not all(map(math.isfinite, rewards)):
            return self._of_finite(rewards, categories)
        found = [
            reward - self._baseline(i, rewards, categories)
            for i, (reward, _) in enumerate(zip(rewards, categories, strict=True))
        ]
        for reward, category in zip(rewards, categories, strict=True):
            seen, mean = self.seen.get(category, 0) + 1, self.means.get(category, 0.0)
            self.seen[category] = seen
            self.means[category] = mean + (reward - mean) / min(seen, self.horizon)
        return found

    def _of_finite(self, rewards: Sequence[float], categories: Sequence[str]) -> list[float]:
        places = [place for place, reward in enumerate(rewards) if math.isfinite(reward)]
        found = [0.0] * len(rewards)
        own = self.advantages([rewards[place] for place in places], [categories[place] for place in places])
        for place, value in zip(places, own, strict=True):
            found[place] = value
        return found

    def state_dict(self) -> dict[str, Any]:
        return {"seen": dict(self.seen), "means": dict(self.means)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.seen, self.means = dict(state["seen"]), dict(state["means"])

    def _baseline(self, index: int, rewards: Sequence[float], categories: Sequence[str]) -> float:
        category = categories[index]
        if category in self.seen:
            return self.means[category]
        rest = [
            reward
            for i, (reward, other) in enumerate(zip(rewards, categories, strict=True))
            if other == category and i != index
        ]
        return sum(rest) / len(rest) if rest else rewards[index]


def of_sound_groups(
    rewards: Sequence[float], sizes: Sequence[int], held_against: Callable[[list[float], list[int]], list[float]]
) -> list[float]:
    """Advantages of the groups whose rewards are all finite, NaN for every member of the others, which no baseline hears of.

    `held_against(rewards, places)` gives the advantages of the rewards at these places.
    """
    out, start, places = [math.nan] * len(rewards), 0, list[int]()
    for size in sizes:
        members = range(start, start + size)
        places += members if all(math.isfinite(rewards[i]) for i in members) else ()
        start += size
    for place, value in zip(places, held_against([rewards[i] for i in places], places), strict=True):
        out[place] = value
    return out


def by_group(rewards: Sequence[float], sizes: Sequence[int]) -> list[float]:
    """Advantages against the mean of each group, in the order of the rollouts."""
    out: list[float] = []
    for size in sizes:
        out += advantages(rewards[len(out) : len(out) + size])
    return out
