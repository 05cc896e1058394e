"""A lite suite: the tasks that order policies as the whole suite does, at a fraction of its cost, and an honest word on how well.

Tasks are taken greedily: at each step the one that most raises the expected number of pairs of policies that fresh passes of the lite
suite would order as the whole does. Whatever is picked for agreeing agrees too well on what it was picked by, so the procedure is
judged on what it did not see: it is repeated on random halves of the passes and judged on the other halves; with eight policies or more
also on half of the policies when the other half did the picking. The lower of the two counts. The list that is given back
is then picked by all passes of all policies.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from etude.core.statistics.rank import POLICIES_MIN, agreement

SHARE, LEAST = 0.2, 0.9
ROUNDS = 40  # of judging; the standard error of their mean is under 0.02 where it matters
POLICIES_HALVED = 8  # from here on half of the policies are still enough for a rank correlation


class NoLite(ValueError):
    """No lite suite keeps the ranking at that cost, or nothing is left to judge it by; `reached` says what was found, if anything."""

    def __init__(self, message: str, reached: Lite | None = None) -> None:
        super().__init__(message)
        self.reached = reached


@dataclass(frozen=True)
class Lite:
    """Rank correlations are means over the rounds; None where that could not be judged."""

    tasks: tuple[int, ...]  # rows of the tables
    cost_share: float
    held_out_passes: float | None  # lite on passes it was not picked by, against the whole on the others
    held_out_policies: float | None  # the same among policies that had no part in the picking
    whole_itself: float | None  # the whole suite on one half of the passes against the other: the ceiling
    low: float  # a tenth of the rounds of the lower of the two lie below
    policies: int
    rounds: int

    @property
    def reached(self) -> float:
        """What it is judged by."""
        return min(value for value in (self.held_out_passes, self.held_out_policies) if value is not None)


def choose_lite(
    tables: Mapping[str, np.ndarray],
    costs: np.ndarray,
    share: float = SHARE,
    least: float = LEAST,
    seed: int = 0,
    rounds: int = ROUNDS,
    weights: np.ndarray | None = None,
) -> Lite:
    """`tables[policy]` is (N, K), tasks in one order; `costs` (N,) is the cost of a pass at each task, in any unit.

    The order to keep is that of the whole suite's average, tasks weighed by `weights` (N,) as there; without, and in the lite suite
    itself, every task counts once. Raises NoLite if less than `least` is reached within `share` of the cost, or if it can't be judged:
    with one pass a task and fewer than eight policies.
    """
    costs = np.asarray(costs, float)
    weights = np.ones(len(costs)) if weights is None else np.asarray(weights, float)
    _check(tables, costs, weights, share)
    budget = share * costs.sum()
    rng = np.random.default_rng(seed)
    judged = _Judged()
    for _ in range(rounds):
        _judge_round(judged, tables, costs, weights, budget, rng)
    tasks = sorted(_pick(list(tables.values()), costs, weights, budget))
    found = judged.lite(tuple(tasks), float(costs[tasks].sum() / costs.sum()), len(tables), rounds)
    if found.reached < least:
        raise NoLite(_why(found, share, least), found)
    return found


@dataclass
class _Judged:
    """Correlations by round."""

    passes: list[float] = field(default_factory=list)
    policies: list[float] = field(default_factory=list)
    whole: list[float] = field(default_factory=list)

    def lite(self, tasks: tuple[int, ...], cost_share: float, policies: int, rounds: int) -> Lite:
        lower = min((kind for kind in (self.passes, self.policies) if kind), key=np.mean)
        by_passes, by_policies, whole = (
            float(np.mean(kind)) if kind else None for kind in (self.passes, self.policies, self.whole)
        )
        low = float(np.quantile(lower, 0.1))
        return Lite(tasks, cost_share, by_passes, by_policies, whole, low, policies, rounds)


def _judge_round(
    judged: _Judged,
    tables: Mapping[str, np.ndarray],
    costs: np.ndarray,
    weights: np.ndarray,
    budget: float,
    rng: np.random.Generator,
) -> None:
    """Adds one round: tasks are picked by one half of the passes, or of the policies, and judged by the other half."""
    names = list(tables)
    has_passes = all(table.shape[1] > 1 for table in tables.values())
    one, other = _halves(tables, rng) if has_passes else (dict(tables), dict(tables))
    if has_passes:
        picked = _pick(list(one.values()), costs, weights, budget)
        seen, fresh = _means(one, names), _means(other, names)
        judged.passes.append(agreement(fresh[:, picked].mean(axis=1), seen @ weights))
        judged.whole.append(agreement(fresh @ weights, seen @ weights))
    if len(names) >= POLICIES_HALVED:
        order = [names[i] for i in rng.permutation(len(names))]
        pickers, unseen = order[: len(names) // 2], order[len(names) // 2 :]
        picked = _pick([one[name] for name in pickers], costs, weights, budget)
        # With one pass lite and whole would share their luck: the tasks that were not picked represent the whole.
        rest = np.arange(len(costs)) if has_passes else np.setdiff1d(np.arange(len(costs)), picked)
        lite, whole = _means(other, unseen)[:, picked], _means(one, unseen)[:, rest]
        judged.policies.append(agreement(lite.mean(axis=1), whole @ weights[rest]))


def _check(tables: Mapping[str, np.ndarray], costs: np.ndarray, weights: np.ndarray, share: float) -> None:
    if len(tables) < POLICIES_MIN:
        raise NoLite(f"{len(tables)} policies: a ranking to keep needs at least {POLICIES_MIN}")
    if any(len(table) != len(costs) for table in tables.values()):
        raise ValueError(f"costs of {len(costs)} tasks, but a table of another number: they must be the same tasks")
    if len(weights) != len(costs) or not (weights > 0).all():
        raise ValueError("a weight above 0 for each task, in the order of the costs")
    if not 0 < share < 1:
        raise ValueError(f"a share of the cost lies between 0 and 1, not at {share}")
    if not (costs >= 0).all() or not costs.sum() > 0:
        raise ValueError("costs must not be negative, and some task must cost something")
    if costs.min() > share * costs.sum():
        raise NoLite(f"no task costs as little as {share:.0%} of all {len(costs)}: give a larger share")
    if len(tables) < POLICIES_HALVED and any(table.shape[1] < 2 for table in tables.values()):
        raise NoLite(
            f"one pass a task and {len(tables)} policies: nothing is left to judge a lite suite by. Ask a second pass, or "
            f"{POLICIES_HALVED} policies"
        )


def _halves(
    tables: Mapping[str, np.ndarray], rng: np.random.Generator
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Each policy's passes cut in two at random."""
    orders = {name: rng.permutation(table.shape[1]) for name, table in tables.items()}
    one = {name: tables[name][:, order[: len(order) // 2]] for name, order in orders.items()}
    return one, {name: tables[name][:, order[len(order) // 2 :]] for name, order in orders.items()}


def _means(tables: Mapping[str, np.ndarray], names: list[str]) -> np.ndarray:
    return np.array([tables[name].mean(axis=1) for name in names])  # (M, N)


def _pick(tables: list[np.ndarray], costs: np.ndarray, weights: np.ndarray, budget: float) -> list[int]:
    """Greedy within the budget, in the order taken."""
    means = np.array([table.mean(axis=1) for table in tables])  # (M, N)
    noise = np.array([_noise(table) for table in tables])
    one, other = np.triu_indices(len(means), 1)
    whole = np.round(means @ weights / weights.sum(), 12)
    sign = np.sign(whole[one] - whole[other])[:, None]  # 0: the whole does not order the pair
    left, taken, total, spread = budget, [], np.zeros(len(means)), np.zeros(len(means))
    free = np.ones(len(costs), bool)
    while True:
        options = np.flatnonzero(free & (costs <= left * (1 + 1e-12)))
        if not len(options):
            return taken
        sums, noises = total[:, None] + means[:, options], spread[:, None] + noise[:, options]
        z = (sums[one] - sums[other]) * sign / np.sqrt(noises[one] + noises[other])  # (pairs, options)
        best = options[int(np.argmax(_normal_cdf(z).sum(axis=0)))]
        taken.append(int(best))
        free[best], left = False, left - costs[best]
        total, spread = total + means[:, best], spread + noise[:, best]


def _noise(table: np.ndarray) -> np.ndarray:
    """Variance of a task's mean over fresh passes, (N,): of its rate drawn half a pass towards each side, so that none is certain."""
    passes = table.shape[1]
    rate = (table.sum(axis=1) + 0.5) / (passes + 1)
    return rate * (1 - rate) / passes


def _normal_cdf(z: np.ndarray) -> np.ndarray:
    """Within 0.01 (the logistic stand-in of Haley 1952): only the order of options is asked, not the figure."""
    return 1 / (1 + np.exp(-np.clip(1.702 * z, -50, 50)))


def _why(found: Lite, share: float, least: float) -> str:
    text = f"the best {len(found.tasks)} tasks within {share:.0%} of the cost reach a held-out rank correlation of {found.reached:.2f}, under {least}"
    if found.whole_itself is not None and found.whole_itself < least:
        return f"{text}; the whole suite agrees with itself at {found.whole_itself:.2f} only: more passes, or policies further apart"
    return f"{text}: give a larger share, more passes, or settle for less"
