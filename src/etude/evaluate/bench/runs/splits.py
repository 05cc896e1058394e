"""One policy's score by what the tasks are like: category, level, prompt style, length and files of the reference change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from etude.evaluate.bench.outcome import Outcome
from etude.evaluate.bench.scores import scores
from etude.core.statistics.bounded import average
from etude.core.statistics.interval import weighted_mean

# Lower bounds. Public sets have a median of 7 to 10 changed lines, the report's own 181 (Composer 2 report, section 5); 1,000 is
# where a change is a project.
LINES = (1, 10, 50, 200, 1000)
FILES = (1, 2, 5, 10)


def splits(outcomes: Sequence[Outcome], *, resamples: int, seed: int) -> dict[str, Any]:
    """Tables by each trait that some task tells; within a row each task counts once."""
    traits: dict[str, Callable[[Outcome], str]] = {
        "by_category": lambda o: o.category,
        "by_level": lambda o: o.level,
        "by_style": lambda o: o.style,
        "by_lines": lambda o: band(o.lines, LINES),
        "by_files": lambda o: band(o.files, FILES),
        "by_holdout": lambda o: o.holdout,
    }
    return {name: _rows(outcomes, trait, resamples, seed) for name, trait in traits.items()}


def band(value: int, bounds: Sequence[int]) -> str:
    """`10-49`; the last is open; "" below the first: a task without a reference tells neither."""
    if value < bounds[0]:
        return ""
    place = max(i for i, bound in enumerate(bounds) if bound <= value)
    if place == len(bounds) - 1:
        return f"{bounds[place]}+"
    last = bounds[place + 1] - 1
    return str(bounds[place]) if last == bounds[place] else f"{bounds[place]}-{last}"


def _rows(outcomes: Sequence[Outcome], trait: Callable[[Outcome], str], resamples: int, seed: int) -> dict[str, Any]:
    groups: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        if name := trait(outcome):
            groups.setdefault(name, []).append(outcome)
    rows = {}
    for name in sorted(groups, key=_order):
        found = scores(groups[name])
        mean, ci95 = average(found.means(), found.counts(), resamples=resamples, seed=seed).percent()
        best = round(100 * weighted_mean(found.best(found.most()), found.counts()), 2)
        rows[name] = {"avg": mean, "ci95": ci95, "tasks": found.tasks, f"best_of_{found.most()}": best}
    return rows


def _order(name: str) -> tuple[int, str]:
    """Bands by their lower bound, words by the alphabet."""
    lead = name.rstrip("+").partition("-")[0]
    return (int(lead), "") if lead.isdigit() else (0, name)
