"""Which passes surprise: those an auditor always reads, sampled or not. They are chosen by outcome; the auditor does not learn why.

solved-out-of-reach   a policy far below the best solved what few of the others solve
solved-at-once        in less than half the turns that passes of this level take, and in three or fewer
solved-untested       files were edited and no test was run after that
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from etude.evaluate.bench.outcome import Outcome

# Twenty points below the best: more than intervals of a usual suite leave open.
FAR_BELOW = 0.2
# At most one in five passes of the others: an item that few solve.
FEW = 0.2
AT_ONCE_TURNS = 3


@dataclass(frozen=True)
class Pass:
    """One attempt of one policy at one effort (`key`)."""

    key: str
    task_id: str
    attempt: int


def surprising_passes(outcomes: Mapping[str, Sequence[Outcome]], controls: Iterable[str] = ()) -> dict[Pass, list[str]]:
    """Solved passes that surprise, and in which way, by outcome alone. `controls` (expert, nop, cheats) are not measured against."""
    apart = frozenset(controls)
    compared = {key: rows for key, rows in outcomes.items() if key not in apart and rows}
    averages = {key: _mean(row.score for row in rows) for key, rows in compared.items()}
    best = max(averages.values(), default=0.0)
    turns = _usual_turns(row for rows in compared.values() for row in rows)
    found: dict[Pass, list[str]] = {}
    for key, rows in compared.items():
        for row in rows:
            if row.score < 1.0:
                continue
            why = []
            if best - averages[key] >= FAR_BELOW and _rate_of_others(compared, key, row.task_id) <= FEW:
                why.append("solved-out-of-reach")
            if row.turns <= min(AT_ONCE_TURNS, turns[row.level] / 2):
                why.append("solved-at-once")
            if why:
                found[Pass(key, row.task_id, row.attempt)] = why
    return found


def _usual_turns(rows: Iterable[Outcome]) -> dict[str, float]:
    """By level, the median over solved passes."""
    by_level: dict[str, list[int]] = {}
    for row in rows:
        if row.score >= 1.0:
            by_level.setdefault(row.level, []).append(row.turns)
    return {level: float(median(counts)) for level, counts in by_level.items()}


def _rate_of_others(outcomes: Mapping[str, Sequence[Outcome]], key: str, task_id: str) -> float:
    """Share of the others' passes that solved the task; 1 where no other policy ran, since then nothing surprises."""
    scores = [
        row.score >= 1.0 for other, rows in outcomes.items() if other != key for row in rows if row.task_id == task_id
    ]
    return _mean(scores) if scores else 1.0


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return sum(found) / len(found)
