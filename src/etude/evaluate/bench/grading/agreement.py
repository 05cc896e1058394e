"""How far a judge agrees with hand labels, and readers with each other: Cohen's kappa with a bootstrap interval, printed with every
score that the judge gives.

    kappa = 1 - sum(w * observed) / sum(w * expected)      Cohen 1968, eq. 3; w = |i - j| / (n - 1) over ordered choices

With two choices this is Cohen's kappa of 1960. 1 is full agreement, 0 what two readers with these habits would reach by chance. Items
are resampled; a criterion that the judge did not decide counts neither as agreement nor as disagreement; it is reported separately.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from etude.evaluate.bench.grading.claims import standing
from etude.evaluate.bench.grading.judge import Judge
from etude.evaluate.bench.grading.labels import Label
from etude.evaluate.bench.grading.rubric import Criterion, Rubric
from etude.evaluate.bench.grading.together import gather_all

RESAMPLES = 2000
TWO, ONE_TWICE = "two readers", "one reader twice"
Ranks = Sequence[int] | np.ndarray
# What decides an item: a choice, or None where it was silent.
Decides = Callable[[Label], Coroutine[Any, Any, str | None]]


@dataclass(frozen=True)
class Agreement:
    """Over `items` labels of which `silent` were not decided. `kappa` is None where it is not defined: nothing was decided, or both
    readers chose one and the same choice throughout. `undefined`: the share of resamples without a kappa, left out of the interval."""

    judge: str
    criterion: str
    items: int
    silent: int
    same: float | None  # share of decided items with the same choice
    kappa: float | None
    ci95: tuple[float, float] | None
    undefined: float = 0.0

    def words(self) -> str:
        """One line, as it is printed next to a score."""
        silent = f", {self.silent} not decided" if self.silent else ""
        if self.kappa is None or self.ci95 is None:
            return f"kappa not defined over {self.items} labels{silent}"
        low, high = self.ci95
        return f"kappa {self.kappa:.2f} [{low:.2f}, {high:.2f}] over {self.items} labels{silent}"


def kappa(ours: Ranks, theirs: Ranks, choices: int) -> float | None:
    """Cohen's kappa with linear weights over ranks; None where chance alone explains everything. Raises ValueError on unequal lengths."""
    if len(ours) != len(theirs):
        raise ValueError(f"kappa compares two readers of the same items, not of {len(ours)} and {len(theirs)}")
    if len(ours) == 0:
        return None
    table = np.zeros((choices, choices))  # ours by theirs
    np.add.at(table, (np.asarray(ours), np.asarray(theirs)), 1.0)
    table /= table.sum()
    ranks = np.arange(choices)
    weights = np.abs(ranks[:, None] - ranks[None, :]) / (choices - 1)
    expected = float((weights * np.outer(table.sum(axis=1), table.sum(axis=0))).sum())
    return None if expected == 0 else 1.0 - float((weights * table).sum()) / expected


async def agreement(
    name: str, decide: Decides, labels: Sequence[Label], criterion: Criterion, *, resamples: int = RESAMPLES
) -> Agreement:
    """The agreement of `decide` with the labels."""
    said = await gather_all(decide(label) for label in labels)
    return measure_agreement(name, said, [label.choice for label in labels], criterion, resamples=resamples)


def readers(labels: Sequence[Label], criterion: Criterion, *, resamples: int = RESAMPLES) -> list[Agreement]:
    """How far those who labelled agree among themselves, first reading against second: of two readers, and of one who read twice.

    The first is a judge's ceiling: a judge that agrees with the labels more than readers do with each other follows their habits.
    """
    kinds: dict[str, list[tuple[str, str]]] = {}
    for label in labels:
        if len(label.readings) >= 2:
            first, second = label.readings[:2]
            kind = ONE_TWICE if first.reader == second.reader else TWO
            kinds.setdefault(kind, []).append((first.choice, second.choice))
    return [
        measure_agreement(kind, [one for one, _ in found], [two for _, two in found], criterion, resamples=resamples)
        for kind in (TWO, ONE_TWICE)
        if (found := kinds.get(kind))
    ]


def measure_agreement(
    name: str, said: Sequence[str | None], wanted: Sequence[str], criterion: Criterion, *, resamples: int, seed: int = 0
) -> Agreement:
    """Two readers of the same items by their choices; pure."""
    rank = {choice: place for place, choice in enumerate(criterion.choices)}
    pairs = np.array([(rank[one], rank[two]) for one, two in zip(said, wanted, strict=True) if one is not None])
    count, silent = len(wanted), len(wanted) - len(pairs)
    if not len(pairs):
        return Agreement(name, criterion.name, count, silent, None, None, None)
    value = kappa(pairs[:, 0], pairs[:, 1], len(rank))
    same = round(float((pairs[:, 0] == pairs[:, 1]).mean()), 4)
    if value is None:
        return Agreement(name, criterion.name, count, silent, same, None, None)
    rng = np.random.default_rng(seed)
    draws = (pairs[rng.integers(len(pairs), size=len(pairs))] for _ in range(resamples))
    found = [one for draw in draws if (one := kappa(draw[:, 0], draw[:, 1], len(rank))) is not None]
    low, high = (round(float(one), 4) for one in np.quantile(found, [0.025, 0.975]))
    undefined = round(1 - len(found) / resamples, 4)
    return Agreement(name, criterion.name, count, silent, same, round(value, 4), (low, high), undefined)


def by_judge(judge: Judge, rubric: Rubric, criterion: Criterion) -> Decides:
    """A paid judge; what it decided before is not asked again."""

    async def decide(label: Label) -> str | None:
        return (await judge.criterion(rubric, criterion, label.attempt, f"label {label.id}")).choice

    return decide


async def by_rule(label: Label) -> str | None:
    """The claim checker."""
    return standing(label.attempt.events, label.attempt.message)[0]
