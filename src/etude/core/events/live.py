"""The one live view of a run, on stderr: for each stage at work its progress, time left and last metrics.

It follows `events.jsonl` instead of being called, so that it shows what the engine's and trainer's processes write too.
On a terminal it draws a bar; elsewhere (CI, a pipe) it prints a plain line now and then.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, TextIO

from etude.core.events.picture import Picture, StagePicture, describe, duration, figure
from etude.core.events.read import Tail

if TYPE_CHECKING:
    from rich.console import RenderableType

REFRESH_S = 0.25  # four times a second looks alive and costs under 1% of a core
PLAIN_EVERY_S = 10.0  # a log that someone scrolls through


class Screen(Protocol):
    """Where the view goes."""

    def note(self, stage: str, text: str) -> None: ...
    def show(self, stages: Sequence[StagePicture]) -> None: ...
    def close(self) -> None: ...


class LiveView:
    """Context manager that shows a run's events from now on until it is left."""

    def __init__(self, events: Path, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._tail = Tail(events, from_end=True)
        self._picture = Picture()
        self._screen: Screen | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="live-view", daemon=True)

    def __enter__(self) -> LiveView:
        self._screen = Bars(self._stream) if self._stream.isatty() else PlainProgress(self._stream)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        self._draw()
        if self._screen is not None:
            self._screen.close()

    def _follow(self) -> None:
        while not self._stop.wait(REFRESH_S):
            self._draw()

    def _draw(self) -> None:
        assert self._screen is not None
        for event in self._tail.poll():
            self._picture.add(event)
            for stage, text in self._picture.take_notes():
                self._screen.note(stage, text)
        self._screen.show(list(self._picture.stages.values()))


class PlainProgress:
    """Plain lines for whatever is no terminal."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._last: dict[str, tuple[str, float]] = {}  # by stage: what was printed, and when

    def note(self, stage: str, text: str) -> None:
        print(f"[{stage}] {text}", file=self._stream, flush=True)

    def show(self, stages: Sequence[StagePicture]) -> None:
        for stage in stages:
            last_text, last_time = self._last.get(stage.name, ("", 0.0))
            finished = stage.total > 0 and stage.done >= stage.total
            begins = stage.phase.partition(",")[0] not in last_text
            if not finished and not begins and time.monotonic() - last_time < PLAIN_EVERY_S:
                continue
            text = stage.phase or describe(stage)
            if text != last_text:
                print(f"[{stage.name}] {text}", file=self._stream, flush=True)
                self._last[stage.name] = (text, time.monotonic())

    def close(self) -> None:
        self._stream.flush()


class Bars:
    """Bars that stay at the bottom of the terminal while notes scroll above them."""

    def __init__(self, stream: TextIO) -> None:
        from rich.console import Console  # rich costs 0.1 s to import: only where there is a terminal to draw on
        from rich.live import Live

        self._live = Live(console=Console(file=stream), auto_refresh=False, transient=True)
        self._live.start()

    def note(self, stage: str, text: str) -> None:
        from rich.markup import escape

        self._live.console.print(f"[bold]{escape(stage)}[/bold] {escape(text)}", highlight=False)

    def show(self, stages: Sequence[StagePicture]) -> None:
        from rich.console import Group

        self._live.update(Group(*(part for stage in stages for part in self._parts(stage))), refresh=True)

    def _parts(self, stage: StagePicture) -> tuple[RenderableType, RenderableType]:
        """A bar, and below it the last figures."""
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        if stage.phase:
            took = duration(max(0.0, time.time() - stage.since))
            row = Table.grid(padding=(0, 1))
            row.add_row(Text(stage.name, style="bold"), Text(f"{stage.phase} …"), Text(took, style="dim"))
            return row, Text("")
        left = stage.seconds_left
        row = Table.grid(padding=(0, 1))
        row.add_row(
            Text(stage.name, style="bold"),
            ProgressBar(total=stage.total or None, completed=stage.done, width=30, pulse=not stage.total),
            Text(f"{stage.done}/{stage.total}" if stage.total else "…"),
            Text("" if left is None else f"about {duration(left)} left", style="dim"),
        )
        shown = "  ".join(f"{name} {figure(value)}" for name, value in stage.shown.items())
        figures = Text(shown, style="dim", no_wrap=True)
        return row, figures

    def close(self) -> None:
        self._live.stop()
