"""From items to figures: each checkpoint's own with its interval, and its paired difference to the first."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from etude.core.statistics.student import student_quantile
from etude.evaluate.bench.bases.material import Material

# Sums over items with 95% intervals that resample whole groups (files, sessions): items of one group share its
# difficulty.
#
# Of few groups a bootstrap is too sure, and more so of amounts with a long tail, so it is widened to Student's
# interval of the ratio (linearised, Cochran 1977, section 6.3) where that reaches further: on the logarithm for
# amounts, which are never negative, plain for differences. Resamples are of G - 1 of G groups, as in
# `core/statistics/interval.py`.


RESAMPLES = 2000
SEED = 0
FARTHEST = 700.0  # of an exponent: what a double still holds

Found = tuple[float, list[float] | None]


def ratio(parts: Sequence[float], wholes: Sequence[float], groups: Sequence[Hashable]) -> Found:
    """sum(parts) / sum(wholes) of parts of 0 and more, with its interval; none with fewer than two groups."""
    value, drawn, reach = _measured(np.asarray(parts, float), wholes, groups)
    if drawn is None or value <= 0:
        return value, drawn
    factor = math.exp(min(reach / value, FARTHEST))
    return value, [min(drawn[0], value / factor), max(drawn[1], value * factor)]


def difference(
    parts: Sequence[float], first: Sequence[float], wholes: Sequence[float], groups: Sequence[Hashable]
) -> Found:
    """`ratio` of `parts` less that of `first` on the same items, paired: the same groups are drawn on both sides."""
    value, drawn, reach = _measured(np.asarray(parts, float) - np.asarray(first, float), wholes, groups)
    return value, None if drawn is None else [min(drawn[0], value - reach), max(drawn[1], value + reach)]


def entry(found: Found) -> dict[str, Any]:
    """The figure as the document holds it."""
    return {"value": found[0], "ci95": found[1]}


def _measured(
    parts: np.ndarray, wholes: Sequence[float], groups: Sequence[Hashable]
) -> tuple[float, list[float] | None, float]:
    """The ratio, the bootstrap's interval, and how far Student's reaches to either side."""
    sums, whole = _by_group(parts, groups), _by_group(wholes, groups)
    value, count = float(sums.sum() / whole.sum()), len(sums)
    if count < 2:
        return value, None, 0.0
    draws = np.random.default_rng(SEED).integers(0, count, (RESAMPLES, count - 1))
    drawn = np.percentile(sums[draws].sum(axis=1) / whole[draws].sum(axis=1), [2.5, 97.5])
    left = sums - value * whole  # adds up to 0
    error = math.sqrt(float(left @ left) * count / (count - 1)) / float(whole.sum())
    return value, [float(bound) for bound in drawn], student_quantile(count - 1) * error


def _by_group(values: Sequence[float] | np.ndarray, groups: Sequence[Hashable]) -> np.ndarray:
    places = {group: place for place, group in enumerate(dict.fromkeys(groups))}
    sums = np.zeros(len(places))
    np.add.at(sums, [places[group] for group in groups], np.asarray(values, float))
    return sums


Items = dict[str, Any]


def figures(found: Items, first: Items | None, asked: Material) -> dict[str, Any]:
    """One checkpoint's measures; `first` are the items of the one that it is compared with, None for that one itself."""
    made: dict[str, Any] = {}
    if "perplexity" in found:
        made["perplexity"] = _perplexity(found["perplexity"], first and first["perplexity"], asked)
    if "state" in found:
        made["state"] = _state(found["state"], first and first["state"], asked)
    if "knowledge" in found:
        made["knowledge"] = _knowledge(found["knowledge"], first and first["knowledge"], asked)
    if "cost" in found:
        made["cost"] = found["cost"]
    return made


def baseline(asked: Material) -> dict[str, Any]:
    """How far off the trivial answer is: the first version, unchanged."""
    distances = [question.unchanged_distance for question in asked.state]
    characters = sum(len(question.answer) for question in asked.state) / len(asked.state)
    return entry(ratio(distances, _ones(distances), _paths(asked))) | {
        "by_changes": _by_changes(distances, asked),
        "answer_characters": characters,
    }


def _perplexity(found: Items, first: Items | None, asked: Material) -> dict[str, Any]:
    sizes = [len(text.encode()) for _, text in asked.files]
    paths = [path for path, _ in asked.files]
    made = entry(ratio(_bits(found["nats"]), sizes, paths))
    if first is not None:
        made["over_first"] = entry(difference(_bits(found["nats"]), _bits(first["nats"]), sizes, paths))
    return made | {"nats": sum(found["nats"]), "tokens": found["tokens"]}


def _state(found: Items, first: Items | None, asked: Material) -> dict[str, Any]:
    distances = found["distances"]
    made = entry(ratio(distances, _ones(distances), _paths(asked)))
    if first is not None:
        made["over_first"] = entry(difference(distances, first["distances"], _ones(distances), _paths(asked)))
    return made | {
        "by_changes": _by_changes(distances, asked),
        "exact_percent": _percent([distance == 0 for distance in distances]),
        "ended_percent": _percent(found["closed"]),
    }


def _knowledge(found: Items, first: Items | None, asked: Material) -> dict[str, Any]:
    sizes = [len(question.answer.encode()) + 1 for question in asked.knowledge]  # and the space before it
    sessions = [question.session for question in asked.knowledge]
    made = entry(ratio(_bits(found["nats"]), sizes, sessions))
    if first is not None:
        made["over_first"] = entry(difference(_bits(found["nats"]), _bits(first["nats"]), sizes, sessions))
    return made | {"exact_percent": _percent(found["exact"])}


def _by_changes(distances: Sequence[float], asked: Material) -> dict[str, dict[str, Any]]:
    """The mean distance for each number of changes."""
    made = {}
    for n in sorted({question.changes for question in asked.state}):
        places = [place for place, question in enumerate(asked.state) if question.changes == n]
        chosen = [distances[place] for place in places]
        made[str(n)] = entry(ratio(chosen, _ones(chosen), [asked.state[place].path for place in places]))
    return made


def _paths(asked: Material) -> list[str]:
    return [question.path for question in asked.state]


def _bits(nats: Sequence[float]) -> list[float]:
    return [value / math.log(2) for value in nats]


def _ones(items: Sequence[Any]) -> list[float]:
    return [1.0] * len(items)


def _percent(flags: Sequence[bool]) -> float:
    return 100 * sum(flags) / len(flags)
