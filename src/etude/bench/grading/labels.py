"""Hand-labelled verdicts: small changes and final messages, each with the choice that a reader made and the reason in a sentence.

`labels/<criterion>.jsonl`, one item a line. Who labelled: the project's authors, one reader; the set is small, and its items were written for
it over small functions. It tells a judge that can't read from one that can, and not two good judges from each other.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from etude.bench.grading.exhibit import Exhibit
from etude.bench.grading.log import Event
from etude.bench.grading.rubric import Criterion, Rubric, read_rubric
from etude.bench.grading.written import Written

FOLDER = Path(__file__).parent / "labels"
RUBRIC = "reader"


class LabelError(ValueError):
    """A label that can't be used: which line of which file, and why."""


@dataclass(frozen=True)
class Label:
    """One item: what a judge is shown, the reader's choice and reason."""

    id: str
    criterion: str
    exhibit: Exhibit
    choice: str
    reason: str


def label_rubric() -> Rubric:
    """The criteria that there are labels for."""
    return read_rubric(FOLDER / f"{RUBRIC}.toml")


def read_labels(criterion: Criterion, path: Path | None = None) -> list[Label]:
    """The labels of a criterion, by default those that come with the project. Raises LabelError."""
    path = path or FOLDER / f"{criterion.name}.jsonl"
    if not path.is_file():
        raise LabelError(f"{path}: there are no labels for the criterion {criterion.name!r}")
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    found = [_label(line, criterion, f"{path}:{number}") for number, line in enumerate(lines, 1)]
    ids = [one.id for one in found]
    if twice := {one for one in ids if ids.count(one) > 1}:
        raise LabelError(f"{path}: the id {min(twice)!r} stands twice")
    return found


def _label(line: str, criterion: Criterion, place: str) -> Label:
    try:
        row = json.loads(line)
        events = tuple(_event(one) for one in row.get("log", ()))
        diff = row.get("diff") or "\n".join(text for event in events for one in event.edits for text in one.lines())
        exhibit = Exhibit(row["request"], diff, row.get("message", ""), events)
        label = Label(row["id"], criterion.name, exhibit, row["choice"], row["reason"])
    except (ValueError, KeyError, TypeError) as error:
        raise LabelError(f"{place} is no label: {type(error).__name__} {error}") from error
    if label.choice not in criterion.choices or not label.reason.strip():
        raise LabelError(
            f"{place}: the choice {label.choice!r} needs to be one of {', '.join(criterion.choices)}, with a reason"
        )
    return label


def _event(row: dict[str, Any]) -> Event:
    """`{"edit": path, "new": [...], "gone": [...]}`, `{"test": command, "green": true}`, `{"read": path}`, `{"shell": line, "result": text}`."""
    kinds = ("edit", "test", "read", "search", "shell", "said", "heard")
    kind = next(kind for kind in kinds if kind in row)
    edits = (Written(row["edit"], tuple(row.get("new", ())), tuple(row.get("gone", ()))),) if kind == "edit" else ()
    failed = bool(row.get("failed")) or row.get("green") is False
    return Event(kind, row[kind], row.get("result", ""), failed, row.get("green"), edits)  # pyright: ignore[reportArgumentType]
