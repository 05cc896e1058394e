"""`steps.jsonl`: what every training step came to, one line each; the last line of a step counts. A number that is not finite is null there."""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from etude.core.events.finite import without_nan
from etude.core.files import append_lines


@dataclass(frozen=True)
class StepRecord:
    """`components`, `advantages` and `measured` belong to the rollouts of `groups`, group by group, slot by slot."""

    step: int
    groups: list[int]
    values: dict[str, float]
    versions: dict[str, int]  # sampled tokens by policy version
    components: list[dict[str, float]]
    advantages: list[float]
    measured: list[dict[str, float]] = field(default_factory=list)  # components before any weight
    weights: dict[str, float] = field(default_factory=dict)  # what they were mixed with
    alarms: list[str] = field(default_factory=list)  # what `rewards/alarms.py` said of the step: cause, then figures


def append(path: Path, record: StepRecord) -> None:
    """Raises OSError if the disk is full."""
    append_lines(path, json.dumps(without_nan(asdict(record)), allow_nan=False).encode() + b"\n", durable=False)


def read(path: Path) -> list[StepRecord]:
    """The records in order of steps; a line torn by a kill is left out (its step is trained again)."""
    records: dict[int, StepRecord] = {}
    for line in path.read_bytes().splitlines() if path.exists() else []:
        try:
            record = _restored(StepRecord(**json.loads(line)))
        except (json.JSONDecodeError, RecursionError):
            continue
        records[record.step] = record
    return [records[step] for step in sorted(records)]


def _restored(record: StepRecord) -> StepRecord:
    """Null means a number that is not finite, and reads as NaN."""
    rows = lambda found: [_numbers(row) for row in found]
    return replace(
        record,
        values=_numbers(record.values),
        components=rows(record.components),
        advantages=[math.nan if value is None else value for value in record.advantages],
        measured=rows(record.measured),
    )


def _numbers(row: dict[str, float]) -> dict[str, float]:
    return {name: math.nan if value is None else value for name, value in row.items()}


def tokens_by_version(records: list[StepRecord]) -> Counter[int]:
    counts: Counter[int] = Counter()
    for record in records:
        counts.update({int(version): count for version, count in record.versions.items()})
    return counts


def alarms_of(records: list[StepRecord]) -> list[dict[str, str | int]]:
    """Every alarm with its step, in order."""
    return [{"step": record.step, "text": text} for record in records for text in record.alarms]
