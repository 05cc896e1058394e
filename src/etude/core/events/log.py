"""Appends events to a run's `events.jsonl`: the one way metrics, progress and notes leave any process of a run.

Promise: an event is on disk whole or not at all for the reader. Each is one `write` of one line to a file opened with
O_APPEND, so several processes share the file without a lock, and a kill can tear at most the last line, which readers
skip. A log travels by pickle to other processes, where it opens the file again.

    {"time": 1760000000.1, "kind": "metric", "stage": "rl", "step": 3, "values": {"reward": 0.4}}
    {"time": ..., "kind": "progress", "stage": "sft", "done": 10, "total": 300, "info": {"loss": 1.2}}
    {"time": ..., "kind": "phase", "stage": "rl", "text": "starting Ray"}
    {"time": ..., "kind": "note", "stage": "base", "text": "..."}
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Progress may be reported thousands of times a second; the view refreshes four times a second, so more is waste.
PROGRESS_EVERY_S = 0.25
# How long a write of one line takes at most, on a disk that isn't full. One that takes longer costs an empty line.
ANOTHER_WRITES_S = 0.02


class EventLog:
    """Writes events of one process. `null()` gives one that keeps nothing (tests, one-off commands)."""

    def __init__(self, path: Path | None, *, clock: Callable[[], float] = time.time) -> None:
        self.path = None if path is None else Path(path)
        self._clock = clock
        self._file: int | None = None
        self._last_progress: dict[str, float] = {}

    @classmethod
    def null(cls) -> EventLog:
        """A log that keeps nothing."""
        return cls(None)

    def metric(self, stage: str, step: int, **values: float) -> None:
        """Figures of one step; a step logged again (after a resume) replaces the earlier one for readers."""
        self._append("metric", stage, step=int(step), values={name: _number(v) for name, v in values.items()})

    def progress(self, stage: str, done: int, total: int, **info: Any) -> None:
        """How far the stage is. Written at most every PROGRESS_EVERY_S, but the end is always written."""
        now = self._clock()
        if done < total and 0 <= now - self._last_progress.get(stage, -math.inf) < PROGRESS_EVERY_S:
            return
        self._last_progress[stage] = now
        self._append("progress", stage, done=int(done), total=int(total), info={k: _value(v) for k, v in info.items()})

    def phase(self, stage: str, text: str) -> None:
        """What the stage does where there is no bar to move: shown with the time that it takes, until the next phase or progress."""
        self._append("phase", stage, text=text)

    def note(self, stage: str, text: str, *, ends: bool = False) -> None:
        """One line for the person who watches; with `ends` the stage's last, so that its bar may go."""
        self._append("note", stage, text=text, **({"ends": True} if ends else {}))

    def close(self) -> None:
        """Idempotent; a closed log opens again at the next event."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _append(self, kind: str, stage: str, **fields: Any) -> None:
        if self.path is None:
            return
        if self._file is None:
            self._file = _open_after_whole_line(self.path)
        event = {"time": round(self._clock(), 3), "kind": kind, "stage": stage, **fields}
        line = json.dumps(event, allow_nan=False).encode() + b"\n"
        written = os.write(self._file, line)
        if written < len(line):
            raise OSError(
                f"{self.path}: only {written} of {len(line)} bytes fitted on the disk; free space and run again"
            )

    def __reduce__(self) -> tuple[type[EventLog], tuple[Path | None]]:
        return (EventLog, (self.path,))


def _open_after_whole_line(path: Path) -> int:
    """The file opened for appending, with a line torn by an earlier kill ended so that the next one stays whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    if _ends_torn(file):
        time.sleep(ANOTHER_WRITES_S)  # a line that another process is writing looks torn too, at a page's edge
        if _ends_torn(file):
            os.write(file, b"\n")
    return file


def _ends_torn(file: int) -> bool:
    size = os.fstat(file).st_size
    return size > 0 and os.pread(file, 1, size - 1) != b"\n"


def _number(value: Any) -> float | str:
    """A JSON number (torch and numpy scalars too); what JSON can't say is spelled so that `float` reads it back."""
    number = float(value)
    return number if math.isfinite(number) else str(number)


def _value(value: Any) -> Any:
    return value if isinstance(value, str | bool | None) else _number(value)
