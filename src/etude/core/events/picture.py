"""What a person who looks now should see, folded from events: pure, so the terminal view holds no logic."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

METRICS_SHOWN = 6  # more do not fit next to the bar on an 80-column terminal


@dataclass
class StagePicture:
    """One stage as seen so far in this process's life."""

    name: str
    done: int = 0
    total: int = 0
    step: int | None = None
    values: dict[str, Any] = field(default_factory=dict)
    info: dict[str, Any] = field(default_factory=dict)  # of its progress: what the stage wants seen
    first: tuple[float, int] | None = None  # (time, done) of the first progress: the rate counts from there
    last: tuple[float, int] | None = None
    phase: str = ""  # what it does where no bar moves
    since: float = 0.0  # when that began, seconds since 1970

    @property
    def shown(self) -> dict[str, Any]:
        """The figures that fit: those of the progress, then the first metrics."""
        return dict(list((self.info | self.values | self.info).items())[:METRICS_SHOWN])

    @property
    def seconds_left(self) -> float | None:
        """At the average rate since the first progress; None until there is one."""
        if self.first is None or self.last is None or self.last[1] <= self.first[1]:
            return None
        rate = (self.last[1] - self.first[1]) / max(self.last[0] - self.first[0], 1e-9)
        return (self.total - self.done) / rate


class Picture:
    """Folds events into the stages at work and the notes not yet shown."""

    def __init__(self) -> None:
        self.stages: dict[str, StagePicture] = {}  # those that began and did not end, oldest first
        self.notes: list[tuple[str, str]] = []

    def add(self, event: dict[str, Any]) -> None:
        kind, stage = event["kind"], event["stage"]
        if kind == "note":
            self.notes.append((stage, str(event.get("text", ""))))
            if event.get("ends"):
                self.stages.pop(stage, None)
            return
        seen = self.stages.setdefault(stage, StagePicture(stage))
        if kind == "phase":
            text = str(event.get("text", ""))
            if text.partition(",")[0] != seen.phase.partition(",")[0]:  # counts behind a comma go on within a phase
                seen.since = event["time"]
            seen.phase = text
        elif kind == "progress":
            self._progress(seen, event)
        elif kind == "metric":
            seen.step = event.get("step")
            seen.values.update(event.get("values", {}))

    def take_notes(self) -> list[tuple[str, str]]:
        """Notes since the last call, as (stage, text)."""
        taken, self.notes = self.notes, []
        return taken

    @staticmethod
    def _progress(stage: StagePicture, event: dict[str, Any]) -> None:
        done, total = int(event["done"]), int(event["total"])
        stage.phase = ""
        if stage.first is None or total != stage.total or done < stage.done:  # a new bar within the stage
            stage.first = (event["time"], done)
        stage.done, stage.total, stage.last = done, total, (event["time"], done)
        stage.info.update(event.get("info", {}))


def describe(stage: StagePicture) -> str:
    """One line: `rl 12/80, about 3 min left, reward 0.41, ...`."""
    if stage.phase:
        return f"{stage.name}: {stage.phase}"
    parts = [f"{stage.name} {stage.done}/{stage.total}" if stage.total else stage.name]
    if stage.seconds_left is not None and stage.done < stage.total:
        parts.append(f"about {duration(stage.seconds_left)} left")
    parts += [f"{name} {figure(value)}" for name, value in stage.shown.items()]
    return ", ".join(parts)


def duration(seconds: float) -> str:
    """`45 s`, `3 min 20 s`, `1 h 5 min`."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def figure(value: Any) -> str:
    """Four significant digits for numbers, everything else as it is."""
    return f"{value:.4g}" if isinstance(value, int | float) and not isinstance(value, bool) else str(value)
