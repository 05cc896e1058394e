"""How often the bench's 95% intervals hold the truth: simulated benches whose truth is known. The table in docs/bench.md.

    python benchmarks/coverage.py --out benchmarks/results/coverage.json

A bench is N tasks in two levels of weights 2 and 1. Each bench draws new tasks. Difficulties are normal in logits (standard deviation 2),
costs lognormal by task (0.8) and by attempt (0.5), and a third cheaper where a task is one deviation harder. Policies answer
independently given the task. The truth is the mean over all tasks there could be, integrated over the density. Each figure is
asked of the function that prints it. Some ten minutes on one core.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from etude.core.statistics.amounts import amount
from etude.core.statistics.best import best_of
from etude.core.statistics.bounded import average, difference
from etude.core.statistics.interval import Interval
from etude.core.statistics.pairs import compare, paired_differences
from etude.core.statistics.pareto import PolicySamples, front, on_front
from etude.core.statistics.power import detectable
from etude.evaluate.bench.bases.figures import difference as lower
from etude.evaluate.bench.bases.figures import ratio

LEVELS = {"easy": (1.5, 2.0), "hard": (-1.0, 1.0)}  # what a level adds to an ability, in logits; its weight
WEIGHTS = {level: weight for level, (_, weight) in LEVELS.items()}
SHARES = {level: weight / sum(WEIGHTS.values()) for level, weight in WEIGHTS.items()}
HARDNESS, BY_TASK, BY_ATTEMPT, HARD_COSTS = 2.0, 0.8, 0.5, 0.3
Z = np.linspace(-9, 9, 4001)
DENSITY = np.exp(-Z * Z / 2) / np.exp(-Z * Z / 2).sum()
ABILITIES = {"one in ten": -3.7, "half": -0.9, "nine in ten": 2.7, "nearly all": 7.0}
STEP = 0.5  # logits that the second policy is better
K = 4
Tables = dict[str, np.ndarray]


@dataclass(frozen=True)
class Policy:
    """`scores` are of 0 and 1, `parts` the share of five tests that pass, `costs` are amounts: (N, K) by level."""

    scores: Tables
    parts: Tables
    costs: Tables


def chance(ability: float, level: str, hard: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-(ability + LEVELS[level][0] + HARDNESS * hard)))


def over_tasks(value: Callable[[str], np.ndarray]) -> float:
    """The weighted mean over all tasks there could be of `value(level)`, given at each difficulty Z."""
    return float(sum(share * (DENSITY * value(level)).sum() for level, share in SHARES.items()))


def benches(abilities: list[float], tasks: int, passes: int, trials: int) -> Iterator[list[Policy]]:
    rng = np.random.default_rng([tasks, passes])
    for _ in range(trials):
        hard = {level: rng.normal(size=(tasks // 2, 1)) for level in LEVELS}
        dear = {level: BY_TASK * rng.normal(size=(tasks // 2, 1)) for level in LEVELS}
        yield [_policy(ability, hard, dear, passes, rng) for ability in abilities]


def _policy(ability: float, hard: Tables, dear: Tables, passes: int, rng: np.random.Generator) -> Policy:
    rates = {level: chance(ability, level, h) for level, h in hard.items()}
    size = {level: (len(rate), passes) for level, rate in rates.items()}
    return Policy(
        {level: rng.binomial(1, rate, size[level]).astype(float) for level, rate in rates.items()},
        {level: rng.binomial(5, rate, size[level]) / 5 for level, rate in rates.items()},
        {
            level: np.exp(-HARD_COSTS * hard[level] + dear[level] + BY_ATTEMPT * rng.normal(size=size[level]))
            for level in hard
        },
    )


def _means(tables: Tables) -> Tables:
    return {level: table.mean(axis=1) for level, table in tables.items()}


def _best(tables: Tables) -> Tables:
    return {level: best_of(table, min(K, table.shape[1])) for level, table in tables.items()}


def truths(ability: float, passes: int) -> dict[str, float]:
    """What each interval should hold."""
    k = min(K, passes)

    def at(k: int, ability: float) -> float:
        return over_tasks(lambda level: 1 - (1 - chance(ability, level, Z)) ** k)

    return {
        "average": at(1, ability),
        "average of partial scores": at(1, ability),
        "pass@4": at(k, ability),
        "best of 4, partial scores": over_tasks(lambda level: _best_of_five(chance(ability, level, Z), k)),
        "difference": at(1, ability + STEP) - at(1, ability),
        "difference of pass@4": at(k, ability + STEP) - at(k, ability),
        "cost": math.exp((HARD_COSTS**2 + BY_TASK**2 + BY_ATTEMPT**2) / 2),
    }


def _best_of_five(rate: np.ndarray, k: int) -> np.ndarray:
    """Expected highest of k draws of a binomial of 5, over 5: the sum of P(highest >= j) / 5."""
    below, total = np.zeros_like(rate), np.zeros_like(rate)
    for j in range(5):
        below = below + math.comb(5, j) * rate**j * (1 - rate) ** (5 - j)  # P(one draw <= j)
        total = total + (1 - below**k) / 5
    return total


def intervals(one: Policy, other: Policy, counts: dict[str, int]) -> dict[str, Interval]:
    """Every kind that a report prints."""
    best = _best(one.scores), _best(other.scores)
    return {
        "average": average(_means(one.scores), WEIGHTS, **counts),
        "average of partial scores": average(_means(one.parts), WEIGHTS, **counts),
        "pass@4": average(best[0], WEIGHTS, **counts),
        "best of 4, partial scores": average(_best(one.parts), WEIGHTS, **counts),
        "difference": difference(paired_differences(_means(one.scores), _means(other.scores)), WEIGHTS, **counts),
        "difference of pass@4": difference(paired_differences(*best), WEIGHTS, **counts),
        "cost": amount(_means(one.costs), WEIGHTS, **counts),
    }


def covered(tasks: int, passes: int, trials: int, resamples: int) -> list[dict[str, Any]]:
    """Per ability and figure, the share of benches whose interval holds the truth, and the mean width."""
    rows = []
    for words, ability in ABILITIES.items():
        truth = truths(ability, passes)
        hits, widths = dict.fromkeys(truth, 0), dict.fromkeys(truth, 0.0)
        for seed, (one, other) in enumerate(benches([ability, ability + STEP], tasks, passes, trials)):
            for name, found in intervals(one, other, {"resamples": resamples, "seed": seed}).items():
                hits[name] += found.low - 1e-12 <= truth[name] <= found.high + 1e-12
                widths[name] += (found.high - found.low) / trials
        rows += [
            {"figure": name, "solves": words, "tasks": tasks, "passes": passes, "truth": round(truth[name], 4),
             "held": round(hits[name] / trials, 4), "width": round(widths[name], 4)}
            for name in truth
        ]  # fmt: skip
    return rows


def alarms(tasks: int, trials: int) -> dict[str, Any]:
    """Policies that are alike called different, by one p-value, by the interval and by Holm's among six pairs; and what is detected."""
    alone = by_interval = together = 0
    for seed, (a, b, c, d) in enumerate(benches([-0.9] * 4, tasks, 4, trials)):
        found = [
            compare(_means(x.scores), _means(y.scores), WEIGHTS, resamples=400, seed=seed)
            for x, y in ((a, b), (a, c), (a, d), (b, c), (b, d), (c, d))
        ]
        alone += found[0].p <= 0.05
        by_interval += found[0].points.low > 0 or found[0].points.high < 0
        together += min(difference.p for difference in found) * len(found) <= 0.05
    return {"tasks": tasks, "p": alone / trials, "interval": by_interval / trials, "holm_of_6": together / trials}


def detected(tasks: int, trials: int) -> dict[str, Any]:
    """A true difference of the size that benches of this kind call detectable: how often p is under 0.05. Nominal 80%."""
    wanted = [
        detectable(paired_differences(_means(a.scores), _means(b.scores)), weights=WEIGHTS)
        for a, b in benches([-0.9, 0.3], tasks, 4, 200)
    ]
    aim = float(np.median([found.difference for found in wanted if found is not None]))
    low, high = 0.0, 12.0
    for _ in range(60):  # the ability that is so much better
        middle = (low + high) / 2
        gap = over_tasks(lambda level, m=middle: chance(-0.9 + m, level, Z) - chance(-0.9, level, Z))
        low, high = (middle, high) if gap < aim else (low, middle)
    pairs = benches([-0.9, -0.9 + low], tasks, 4, trials)
    hits = sum(
        compare(_means(a.scores), _means(b.scores), WEIGHTS, resamples=200, seed=seed).p <= 0.05
        for seed, (a, b) in enumerate(pairs)
    )
    return {"tasks": tasks, "points": round(100 * aim, 1), "found": round(hits / trials, 4)}


def fronts(tasks: int, trials: int) -> list[dict[str, Any]]:
    """Groups points by the share of resamples that put them on the front, and gives the share of each group that truly is on it.

    One of the three policies is a little worse than another on both axes.
    """
    dear = {"cheap": (-1.2, 1.0), "beaten": (-0.5, 1.6), "good": (-0.3, 1.5)}
    true = on_front(
        np.array([truths(a, 4)["average"] for a, _ in dear.values()]), np.array([c for _, c in dear.values()])
    )
    by_band: dict[str, list[bool]] = {}
    for seed, found in enumerate(benches([a for a, _ in dear.values()], tasks, 4, trials)):
        points = {
            name: PolicySamples(_means(policy.scores), {k: factor * v for k, v in _means(policy.costs).items()})
            for (name, (_, factor)), policy in zip(dear.items(), found, strict=True)
        }
        for point, truly in zip(front(points, WEIGHTS, resamples=200, seed=seed).values(), true, strict=True):
            by_band.setdefault(_band(point.share), []).append(bool(truly))
    return [
        {"share": band, "points": len(rows), "truly": round(float(np.mean(rows)), 4)}
        for band, rows in sorted(by_band.items())
    ]


def bases(groups: int, trials: int) -> dict[str, Any]:
    """`etude base compare`: files of lognormal sizes (1) whose bits a byte spread by a third; the second checkpoint is better by 0.1."""
    rng, hits = np.random.default_rng(groups), np.zeros(2)
    for _ in range(trials):
        sizes = rng.lognormal(7, 1, groups)
        bits = sizes * rng.lognormal(0, 0.35, groups)
        better, each = bits + sizes * rng.normal(-0.1, 0.15, groups), range(groups)
        found = (
            (ratio(bits.tolist(), sizes.tolist(), each)[1], math.exp(0.35**2 / 2)),
            (lower(better.tolist(), bits.tolist(), sizes.tolist(), each)[1], -0.1),
        )
        hits += [ends is not None and ends[0] <= truth <= ends[1] for ends, truth in found]
    return {"files": groups, "bits_a_byte": float(hits[0] / trials), "difference": float(hits[1] / trials)}


def _band(share: float) -> str:
    return "0.95 and more" if share >= 0.95 else "0.5 to 0.95" if share >= 0.5 else "under 0.5"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=2000)
    parser.add_argument("--resamples", type=int, default=400)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    rows = [
        row
        for tasks in (12, 30, 100)
        for passes in (1, 8)
        for row in covered(tasks, passes, args.trials, args.resamples)
    ]
    found = {
        "trials": args.trials, "resamples": args.resamples, "intervals": rows,
        "false_alarms": [alarms(tasks, args.trials) for tasks in (12, 30, 100)],
        "detected": [detected(tasks, args.trials) for tasks in (30, 100)],
        "fronts": [{"tasks": tasks, "points": fronts(tasks, args.trials)} for tasks in (30, 100)],
        "bases": [bases(files, args.trials) for files in (5, 12, 30, 100)],
    }  # fmt: skip
    args.out.write_text(json.dumps(found, indent=1) + "\n")
    for name in dict.fromkeys(row["figure"] for row in rows):
        for tasks in (12, 30, 100):
            held = [row["held"] for row in rows if (row["figure"], row["tasks"]) == (name, tasks)]
            print(
                f"{name}, {tasks} tasks: {100 * min(held):.1f} to {100 * max(held):.1f}, mean {100 * float(np.mean(held)):.1f}"
            )
    for name in ("false_alarms", "detected", "fronts", "bases"):
        print(name, json.dumps(found[name]))


if __name__ == "__main__":
    main()
