"""Reads a run's `events.jsonl` as it grows and sends its metrics on; where it stopped is kept, so that nothing is sent twice.

Promise: training never waits for a tracker nor hears of one. The follower is a process of its own that only reads; its place
in the log is written after the tracker took what came before, so that a kill repeats at most one batch.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from etude.core import bounded_toml
from etude.core.files import replace_file
from etude.evaluate.report.rows.lines import flat
from etude.evaluate.report.rows.steps import number
from etude.evaluate.report.sinks.package import Opening, Sink, SinkError

BATCH_LINES = 200  # between two writings of the place
EVERY_S = 1.0  # a tracker's page is looked at by people
RETRIES = 6  # of one line, with waits that double from a second: a minute without network


class MetricsFollower:
    """`poll` sends what came since; `place` is where it is in the file."""

    def __init__(self, run: Path, kind: str, sink: Sink, *, wait: Callable[[float], Any]) -> None:
        self._events = run / "events.jsonl"
        self._kept = run / "sinks" / f"{kind}.json"
        self._sink = sink
        self._kind = kind
        self._wait = wait
        self.place = kept_place(run, kind)
        self.sent = 0

    def poll(self) -> int:
        """Sends the metrics of every whole line that came; returns how many lines were read. Raises SinkError."""
        read = 0
        for after, event in self._lines():
            if event.get("kind") == "metric":
                values = finite(event.get("values", {}))
                if values:
                    self._send(str(event["stage"]), int(event["step"]), values)
            self.place = after
            read += 1
            if read % BATCH_LINES == 0:
                self._keep()
        if read:
            self._keep()
        return read

    def _lines(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """(byte behind the line, event) of whole lines; one torn by a kill is an event without a kind."""
        if not self._events.is_file():
            return
        if self._events.stat().st_size < self.place:
            raise SinkError(
                f"{self._events} is shorter than when it was read last: the folder holds another run now; "
                f"remove {self._kept} to send it from its beginning"
            )
        with self._events.open("rb") as file:
            at = file.seek(self.place)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                try:
                    event = json.loads(line)
                except (ValueError, RecursionError):
                    event = {}
                at += len(line)
                yield at, event if isinstance(event, dict) else {}

    def _send(self, stage: str, step: int, values: dict[str, float]) -> None:
        for attempt in range(RETRIES + 1):
            try:
                self._sink.log(stage, step, values)
                self.sent += 1
                return
            except Exception as error:
                if attempt == RETRIES:
                    self._keep()
                    raise SinkError(
                        f"{self._kind} took nothing in {RETRIES + 1} tries ({type(error).__name__}: {error}); the run goes on. "
                        "Run the same command again: it goes on where this stopped"
                    ) from error
                self._wait(2.0**attempt)

    def _keep(self) -> None:
        self._kept.parent.mkdir(exist_ok=True)
        replace_file(self._kept, json.dumps({"place": self.place}) + "\n")


def kept_place(run: Path, kind: str) -> int:
    """The byte up to which this tracker has the run's events."""
    path = run / "sinks" / f"{kind}.json"
    return int(json.loads(path.read_text())["place"]) if path.is_file() else 0


def finite(values: dict[str, Any]) -> dict[str, float]:
    """Numbers alone: trackers draw no not-a-number."""
    found = {name: number(value) for name, value in flat(values).items()}
    return {n: float(v) for n, v in found.items() if isinstance(v, int | float) and math.isfinite(v)}


def opening(run: Path, project: str, name: str) -> Opening:
    """What the tracker receives: the recipe as its configuration."""
    recipe = run / "recipe.toml"
    config = flat(bounded_toml.loads(recipe.read_text())) if recipe.is_file() else {}
    own = str(config.get("run.name") or run.resolve().name)
    mark = (
        f"{run.resolve().stat().st_ino:x}"  # the same folder is the same run, and another of the same recipe is another
    )
    return Opening(project, name or f"{own}-{mark}", f"{name or own}-{mark}", config)
