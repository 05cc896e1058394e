"""`etude status`: one run with its stages, rates, errors and the command that resumes it."""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from etude.cli.answer import Answer
from etude.cli.option import Json
from etude.cli.status.completion import complete_run
from etude.cli.status.listing import DEFAULT, NoRuns, ago, progress, run_folders, size
from etude.cli.status.rates import rate_lines
from etude.cli.status.read import kind_of, measure, read_run
from etude.cli.status.run_state import RunStatus, StageRow

REFRESH_S = 2.0
CLEAR = "\x1b[H\x1b[2J"


def status(
    run: Annotated[
        str | None,
        typer.Argument(
            metavar="[DIR|NAME]",
            autocompletion=complete_run,
            help="A run directory, or the name of one below runs/. Default: the newest.",
        ),
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Refresh until the run ends or Ctrl-C is pressed.")] = False,
    json: Json = False,
) -> Answer:
    """Show one run: its stages and their times, current rates, the last errors, and the command that resumes it. Nothing is changed."""
    folder = find_run(run)
    state = _read(folder)
    if watch:
        with suppress(KeyboardInterrupt):  # the way to end it
            state = _follow(folder, state, json=json)
    return Answer(state.document(), text(state), 1 if state.state == "damaged" else 0)


def find_run(name: str | None) -> Path:
    """Raises NoRuns where there is no such run."""
    if name is None:
        found = sorted(run_folders(DEFAULT), key=lambda path: measure(path)[1]) if DEFAULT.is_dir() else []
        if not found:
            raise NoRuns("there is no run in runs/; name a run directory, or start one with `etude run`")
        return found[-1]
    for path in (Path(name), DEFAULT / name):
        if path.is_dir() and kind_of(path):
            return path
    raise NoRuns(f"{name} is no run directory, and runs/ has none of that name; `etude runs` lists those there are")


def _read(folder: Path) -> RunStatus:
    name = str(folder.relative_to(DEFAULT)) if folder.is_relative_to(DEFAULT) and folder != DEFAULT else str(folder)
    return read_run(folder, name, rates=True)


def _follow(folder: Path, state: RunStatus, *, json: bool) -> RunStatus:
    """Reads again until the run ends, and shows each state that differs from the one before; with --json only the last is printed."""
    shown = ""
    while state.state == "running":
        now = text(state)
        if not json and now != shown:
            print(f"{CLEAR}{now}" if sys.stdout.isatty() else f"{now}\n", flush=True)
            shown = now
        time.sleep(REFRESH_S)
        state = _read(folder)
    return state


def text(state: RunStatus) -> str:
    lines = [
        f"{state.path}  {state.kind}, {state.words}, {progress(state)} done, {size(state.bytes)}, active {ago(state.active_s)} ago"
    ]
    width = max((len(stage.name) for stage in state.stages), default=0)
    lines += [_stage_line(stage, width) for stage in state.stages]
    for head, found in (
        ("rates", rate_lines(state.rates)),
        ("last errors", [f"  {error}" for error in state.errors]),
        ("fault", [f"  {state.fault}"] if state.fault else []),
    ):
        lines += [f"{head}:", *found] if found else []
    return "\n".join([*lines, *([f"resume: {state.resume}"] if state.resume else [])])


def _stage_line(stage: StageRow, width: int) -> str:
    from etude.core.events.picture import duration

    parts = [f"  {stage.name:{width}}  {stage.state:8}"]
    parts += [f"{stage.done}/{stage.total}"] if stage.total is not None else []
    parts += [time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(stage.started_s))] if stage.started_s else []
    parts += [f"took {duration(stage.seconds)}"] if stage.seconds is not None else []
    return "  ".join(parts).rstrip()
