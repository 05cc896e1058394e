"""Sampling weights of categories: counted over real sessions, written to a file, and turned into shares of a draw over tasks.

A category's share comes with Wilson's 95% interval (`core/statistics/bounded.py`; sessions count as independent, so those of one person in a row
make it too narrow). Its weight is the share under Perks' prior, one session spread over the categories ((count + 1/8) / (decided + 1)): what
nobody happened to ask in a few sessions is rare, not absent.
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
from etude.core.statistics.bounded import wilson
from etude.core.statistics.student import freedom_of, student_quantile
from etude.tasks.errors import TaskError
from etude.tasks.mix.classify import CATEGORIES
from etude.tasks.mix.words import Told
from etude.tasks.row import Row

FORMAT, VERSION = "etude-task-mix", 1


@dataclass(frozen=True)
class Draw:
    """`shares` add up to 1, over categories that there are tasks of. `lacking`: weight of categories without a task, spread over the others;
    `unknown`: tasks of categories that the mix does not know, which are not drawn."""

    shares: dict[str, float]
    lacking: dict[str, float] = field(default_factory=dict)
    unknown: dict[str, int] = field(default_factory=dict)


def mix(found: Mapping[str, Told | None], left_out: Mapping[str, str]) -> dict[str, Any]:
    """The document of the file: by session, what was decided. Raises TaskError where nothing was."""
    decided = {session: told for session, told in found.items() if told is not None}
    if not decided:
        raise TaskError(
            f"none of {len(found)} sessions was decided ({len(left_out)} more could not be used): there is nothing to weigh"
        )
    counts = Counter(told.category for told in decided.values())
    return {
        "format": FORMAT,
        "version": VERSION,
        "sessions": len(found),
        "decided": len(decided),
        "categories": {name: _share(counts[name], len(decided)) for name in CATEGORIES},
        "rules": dict(Counter(f"{told.category}: {told.rule}" for told in decided.values()).most_common()),
        "undecided": sorted(session for session, told in found.items() if told is None),
        "left_out": dict(left_out),
        "decisions": [
            {"session": session, "category": told.category, "rule": told.rule, "saw": told.phrase}
            for session, told in decided.items()
        ],
    }


def _share(count: int, whole: int) -> dict[str, Any]:
    values = {"sessions": np.array([1.0] * count + [0.0] * (whole - count))}
    alone = {"sessions": 1.0}
    below, above = wilson(values, alone, student_quantile(freedom_of(values, alone)))
    share = count / whole
    weight = (count + 1 / len(CATEGORIES)) / (whole + 1)
    told = {"share": share, "low": max(0.0, share - below), "high": min(1.0, share + above), "weight": weight}
    return {"count": count, **{name: round(value, 6) for name, value in told.items()}}


def write_mix(file: Path, document: Mapping[str, Any]) -> None:
    """TOML or JSON, by the file's name; whole or not at all. Raises TaskError for another name."""
    if file.suffix not in (".toml", ".json"):
        raise TaskError(f"{file}: the mix is written as .toml or .json; give --out such a name")
    text = (
        tomli_w.dumps(document) if file.suffix == ".toml" else json.dumps(document, indent=1, ensure_ascii=False) + "\n"
    )
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_name(f".{file.name}.part")
    draft.write_text(text, encoding="utf-8")
    draft.replace(file)


def read_weights(file: Path) -> dict[str, float]:
    """A mix' weights by category; a person may have changed them. Raises TaskError."""
    try:
        text = file.read_text(encoding="utf-8")
        document = bounded_toml.loads(text) if file.suffix == ".toml" else json.loads(text)
        weights = {name: float(row["weight"]) for name, row in document["categories"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise TaskError(
            f"{file} is no mix ({error!r}): write one with `etude tasks mix --sessions DIR --out {file}`"
        ) from error
    if document.get("format") != FORMAT or document.get("version") != VERSION:
        raise TaskError(
            f"{file} is {document.get('format')!r} {document.get('version')!r}, not {FORMAT} {VERSION}: write it again"
        )
    if wrong := [name for name, weight in weights.items() if name not in CATEGORIES or not 0 <= weight < float("inf")]:
        raise TaskError(f"{file}: {wrong[0]} = {weights[wrong[0]]}: weights are 0 or more, of {', '.join(CATEGORIES)}")
    return weights


def draw_over(rows: Iterable[Row], weights: Mapping[str, float]) -> Draw:
    """What share of a draw each category has, over the tasks that there are; within one, tasks are alike. Raises TaskError."""
    there = Counter(row.category for row in rows)
    present = {name: weight for name, weight in weights.items() if there[name] and weight > 0}
    whole = sum(present.values())
    if not whole:
        raise TaskError(
            f"no task is of a category that the mix weighs ({', '.join(weights)}); there are {', '.join(there) or 'none at all'}"
        )
    sum_of_all = sum(weights.values())
    return Draw(
        {name: weight / whole for name, weight in present.items()},
        {name: weight / sum_of_all for name, weight in weights.items() if weight > 0 and not there[name]},
        {name: count for name, count in there.items() if name not in weights},
    )
