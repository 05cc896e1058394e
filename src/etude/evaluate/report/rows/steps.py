"""Training steps of every stage: the figures that `events.jsonl` holds of each, a row a step."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from etude.evaluate.report.rows.lines import flat, json_lines, placed_lines


def steps(run: Path) -> Iterator[dict[str, Any]]:
    """stage, step, time, and the step's figures; of a figure logged again after a resume the last counts.

    Two readings: the first remembers where each step is in the file (a few numbers a step), the second reads it there.
    """
    path = run / "events.jsonl"
    begun = {e["stage"]: e["time"] for e in json_lines(run / "ledger.jsonl") if e.get("event") == "started"}
    places: dict[tuple[str, int], list[int]] = {}
    for at, event in placed_lines(path):
        if event.get("kind") == "metric" and event.get("time", 0.0) >= begun.get(event["stage"], 0.0):
            places.setdefault((event["stage"], event["step"]), []).append(at)
    if not places:
        return
    with path.open("rb") as file:
        for (stage, step), found in places.items():
            row: dict[str, Any] = {"stage": stage, "step": step}
            for at in found:
                file.seek(at)
                event = json.loads(file.readline())
                row |= {"time": event.get("time")} | {k: number(v) for k, v in flat(event.get("values", {})).items()}
            yield row


def number(value: Any) -> Any:
    """Not-a-number and infinity are spelled in the log, since JSON has neither."""
    return float(value) if value in ("nan", "inf", "-inf") else value
