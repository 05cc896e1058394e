"""From items to figures: each checkpoint's own with its interval, and its paired difference to the first."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from etude.evaluate.bench.bases.intervals import difference, entry, ratio
from etude.evaluate.bench.bases.material import Material

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
