"""A run's metrics and what happened meanwhile, as they come: curves by stage and name, marks by time and step."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from etude.evaluate.report.board.change import Problems
from etude.evaluate.report.board.json_lines import GrowingJsonLines

MARKS = 2000  # the newest notes: more say nothing on a curve


class MetricHistory:
    """Folds `events.jsonl`. What an attempt of a stage that was set aside wrote is left out, as in the report."""

    def __init__(self, run: Path, problems: Problems) -> None:
        self._events = GrowingJsonLines(run / "events.jsonl", problems)
        self._ledger = GrowingJsonLines(run / "ledger.jsonl", problems)
        self._problems = problems
        self._lock = threading.Lock()
        self._begun: dict[str, float] = {}
        self._steps: dict[str, dict[int, dict[str, float]]] = {}
        self._progress: dict[str, dict[str, Any]] = {}
        self._marks: list[dict[str, Any]] = []
        self.generation = 0

    def refresh(self) -> None:
        """Read what came since."""
        with self._lock:
            before = len(self._begun), self.generation
            for entry in self._ledger.news():
                if entry.get("event") == "started" and "stage" in entry:
                    self._begin(str(entry["stage"]), float(entry.get("time", 0.0)))
            news = self._events.news()
            for event in news:
                try:
                    if event["time"] >= self._begun.get(event["stage"], 0.0):
                        self._take(event)
                except (KeyError, TypeError, ValueError) as error:
                    self._problems.record("events.jsonl", f"an event of another form ({type(error).__name__}: {error})")
            if news or before != (len(self._begun), self.generation):
                self.generation += 1

    def read(self) -> dict[str, Any]:
        """`stages`: {stage: {"steps": […], "values": {name: [… or null]}}}; `marks`; `progress` of each stage."""
        with self._lock:
            stages = {stage: _columns(steps) for stage, steps in self._steps.items()}
            return {
                "generation": self.generation,
                "stages": stages,
                "marks": list(self._marks),
                "progress": dict(self._progress),
            }

    def _begin(self, stage: str, time: float) -> None:
        """A stage that starts again forgets its earlier metrics."""
        if stage in self._begun:
            self._steps.pop(stage, None)
            self._progress.pop(stage, None)
            self._marks = [mark for mark in self._marks if mark["stage"] != stage]
            self.generation += 1
        self._begun[stage] = time

    def _take(self, event: dict[str, Any]) -> None:
        stage = str(event["stage"])
        if event["kind"] == "metric":
            values = {name: _number(value) for name, value in event.get("values", {}).items()}
            self._steps.setdefault(stage, {}).setdefault(int(event["step"]), {}).update(values)
        elif event["kind"] == "progress":
            self._progress[stage] = {key: event.get(key) for key in ("done", "total", "time", "info")}
        elif event["kind"] == "note":
            last = max(self._steps.get(stage, {}), default=None)
            mark = {"stage": stage, "step": last, "time": event["time"], "text": str(event.get("text", ""))}
            self._marks = [*self._marks, mark][-MARKS:]


def _columns(steps: dict[int, dict[str, float]]) -> dict[str, Any]:
    order = sorted(steps)
    names = sorted({name for values in steps.values() for name in values})
    return {"steps": order, "values": {name: [_json(steps[step].get(name)) for step in order] for name in names}}


def _number(value: Any) -> float:
    """What JSON can't say is written as text (`core/events/log.py`)."""
    return float(value)


def _json(value: float | None) -> float | None:
    """JSON has no NaN: a gap in the curve."""
    return value if value is not None and value - value == 0 else None
