"""Sampling weights of categories: counted over real sessions, written to a file, and turned into shares of a draw over
tasks.

A category's share has Wilson's 95% interval (`core/statistics/bounded.py`). It treats sessions as independent, so
several sessions of one person make it too narrow. The weight is the share under Perks' prior, one session spread over
the categories: (count + 1/8) / (decided + 1). A category that is absent from a few sessions is rare, not impossible.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w

from etude.core import bounded_toml
from etude.core.files import replace_file
from etude.core.statistics.bounded import wilson
from etude.core.statistics.student import freedom_of, student_quantile
from etude.tasks.errors import TaskError
from etude.tasks.mix.classify import CATEGORIES
from etude.tasks.mix.phrases import CategoryMatch
from etude.tasks.task_row import TaskRow

FORMAT, VERSION = "etude-task-mix", 1


@dataclass(frozen=True)
class CategoryShares:
    """Shares of a draw; they add up to 1 over the categories that have tasks.

    `without_tasks`: weight of categories without a task, spread over the others. `unknown`: number of tasks whose
    category the mix does not know; they are not drawn.
    """

    shares: dict[str, float]
    without_tasks: dict[str, float] = field(default_factory=dict)
    unknown: dict[str, int] = field(default_factory=dict)


def build_mix(matches: Mapping[str, CategoryMatch | None], left_out: Mapping[str, str]) -> dict[str, Any]:
    """The content of a mix file: counts, weights and the decision for each session. Raises TaskError if no session is
    decided."""
    decided = {session: match for session, match in matches.items() if match is not None}
    if not decided:
        raise TaskError(
            f"none of {len(matches)} sessions has a category ({len(left_out)} more could not be used), so there are no weights"
        )
    counts = Counter(match.category for match in decided.values())
    return {
        "format": FORMAT,
        "version": VERSION,
        "sessions": len(matches),
        "decided": len(decided),
        "categories": {name: _share(counts[name], len(decided)) for name in CATEGORIES},
        "rules": dict(Counter(f"{match.category}: {match.rule}" for match in decided.values()).most_common()),
        "undecided": sorted(session for session, match in matches.items() if match is None),
        "left_out": dict(left_out),
        "decisions": [
            {"session": session, "category": match.category, "rule": match.rule, "saw": match.phrase}
            for session, match in decided.items()
        ],
    }


def _share(count: int, whole: int) -> dict[str, Any]:
    values = {"sessions": np.array([1.0] * count + [0.0] * (whole - count))}
    stratum = {"sessions": 1.0}
    below, above = wilson(values, stratum, student_quantile(freedom_of(values, stratum)))
    share = count / whole
    weight = (count + 1 / len(CATEGORIES)) / (whole + 1)
    shares = {"share": share, "low": max(0.0, share - below), "high": min(1.0, share + above), "weight": weight}
    return {"count": count, **{name: round(value, 6) for name, value in shares.items()}}


def write_mix(file: Path, document: Mapping[str, Any]) -> None:
    """Writes TOML or JSON, by the file's suffix, atomically. Raises TaskError for another suffix."""
    if file.suffix not in (".toml", ".json"):
        raise TaskError(f"{file}: a mix is a .toml or .json file; give --out such a name")
    text = (
        tomli_w.dumps(document) if file.suffix == ".toml" else json.dumps(document, indent=1, ensure_ascii=False) + "\n"
    )
    file.parent.mkdir(parents=True, exist_ok=True)
    replace_file(file, text)


def read_weights(file: Path) -> dict[str, float]:
    """The weights of a mix file by category; a person may have edited them. Raises TaskError."""
    try:
        text = file.read_text(encoding="utf-8")
        document = bounded_toml.loads(text) if file.suffix == ".toml" else json.loads(text)
        weights = {name: float(row["weight"]) for name, row in document["categories"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise TaskError(
            f"{file} is not a mix ({error!r}): write one with `etude tasks mix --sessions DIR --out {file}`"
        ) from error
    if document.get("format") != FORMAT or document.get("version") != VERSION:
        raise TaskError(
            f"{file} is {document.get('format')!r} {document.get('version')!r}, not {FORMAT} {VERSION}: write it again"
        )
    if wrong := [name for name, weight in weights.items() if name not in CATEGORIES or not 0 <= weight < float("inf")]:
        raise TaskError(f"{file}: {wrong[0]} = {weights[wrong[0]]}: weights are 0 or more, of {', '.join(CATEGORIES)}")
    return weights


def category_shares(rows: Iterable[TaskRow], weights: Mapping[str, float]) -> CategoryShares:
    """Each category's share of a draw over the tasks that exist; tasks of one category share alike. Raises TaskError."""
    counts = Counter(row.category for row in rows)
    present = {name: weight for name, weight in weights.items() if counts[name] and weight > 0}
    whole = sum(present.values())
    if not whole:
        raise TaskError(
            f"no task is of a category that the mix weighs ({', '.join(weights)}); the tasks have {', '.join(counts) or 'no categories at all'}"
        )
    sum_of_all = sum(weights.values())
    return CategoryShares(
        {name: weight / whole for name, weight in present.items()},
        {name: weight / sum_of_all for name, weight in weights.items() if weight > 0 and not counts[name]},
        {name: count for name, count in counts.items() if name not in weights},
    )
