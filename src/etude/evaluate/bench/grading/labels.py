"""Hand-labelled verdicts: small changes and final messages, each with what readers chose, why, and what was settled where they differ.

`labels/<criterion>.jsonl`, one item a line: what a judge is shown, `source`, `readings` (reader, choice, reason), and `settled` where the
readings differ. The set is small, and its readers are the project's own authors: it tells a judge that can't read from one that can, and
not two good judges from each other. How often readers agree with each other (`agreement.readers`) is the most that a judge can be held to.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from etude.evaluate.bench.grading.edited_lines import EditedLines
from etude.evaluate.bench.grading.judged_attempt import JudgedAttempt
from etude.evaluate.bench.grading.log import ActionEvent, Kind
from etude.evaluate.bench.grading.rubric import Criterion, Rubric, read_rubric

FOLDER = Path(__file__).parent / "labels"
RUBRIC = "reader"


class LabelError(ValueError):
    """A label that can't be used: which line of which file, and why."""


@dataclass(frozen=True)
class ReaderLabel:
    """What one reader chose, without sight of any other reading. The same reader twice: read again later, in another order."""

    reader: str
    choice: str
    reason: str


@dataclass(frozen=True)
class Label:
    """One item: what a judge is shown, how it was read, and the choice that counts: the common one, or the settled."""

    id: str
    criterion: str
    attempt: JudgedAttempt
    readings: tuple[ReaderLabel, ...]
    choice: str
    reason: str
    source: str


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
        raise LabelError(f"{path}: the id {min(twice)!r} occurs twice")
    return found


def _label(line: str, criterion: Criterion, place: str) -> Label:
    try:
        row = json.loads(line)
        events = tuple(_event(one) for one in row.get("log", ()))
        diff = row.get("diff") or "\n".join(text for event in events for one in event.edits for text in one.lines())
        attempt = JudgedAttempt(row["request"], diff, row.get("message", ""), events)
        readings = tuple(ReaderLabel(**one) for one in row["readings"])
        settled = ReaderLabel("", **row["settled"]) if "settled" in row else None
        name, source = str(row["id"]), str(row["source"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise LabelError(f"{place} is no label: {type(error).__name__} {error}") from error
    counts = _counting(readings, settled, criterion, place)
    return Label(name, criterion.name, attempt, readings, counts.choice, counts.reason, source)


def _counting(
    readings: tuple[ReaderLabel, ...], settled: ReaderLabel | None, criterion: Criterion, place: str
) -> ReaderLabel:
    """The reading that counts. Raises LabelError."""
    for one in (*readings, *([settled] if settled else [])):
        if one.choice not in criterion.choices or not one.reason.strip():
            words = ", ".join(criterion.choices)
            raise LabelError(f"{place}: the choice {one.choice!r} needs to be one of {words}, with a reason")
    if not readings:
        raise LabelError(f"{place}: it has no reading; a label needs one")
    differ = len({one.choice for one in readings}) > 1
    if differ != (settled is not None):
        raise LabelError(
            f"{place}: "
            + (
                "its readings differ; say under `settled` what counts, and why"
                if differ
                else "its readings agree: nothing is settled"
            )
        )
    return settled or readings[0]


def _event(row: dict[str, Any]) -> ActionEvent:
    """`{"edit": path, "new": [...], "gone": [...]}`, `{"test": command, "green": true}`, `{"read": path}`, `{"shell": line, "result": text}`.
    Raises ValueError."""
    kinds = get_args(Kind)
    kind = next((kind for kind in kinds if kind in row), None)
    if kind is None:
        raise ValueError(f"a step of the log is one of {', '.join(kinds)}, not {min(row, default='nothing')!r}")
    edits = (EditedLines(row["edit"], tuple(row.get("new", ())), tuple(row.get("gone", ()))),) if kind == "edit" else ()
    failed = bool(row.get("failed")) or row.get("green") is False
    return ActionEvent(kind, row[kind], row.get("result", ""), failed, row.get("green"), edits)  # pyright: ignore[reportArgumentType]
