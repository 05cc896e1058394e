"""`etude report sink`: a run's metrics sent on to a tracker, live."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from etude.cli.answer import Answer
from etude.cli.option import Json

_Run = Annotated[Path, typer.Argument(metavar="DIR", help="The run's directory.")]
_To = Annotated[str, typer.Option("--to", help="Tracker: trackio or wandb; its package must be installed.")]
_Project = Annotated[str, typer.Option("--project", help="The tracker's project.")]
_Name = Annotated[str, typer.Option("--name", help="The run's name there. Default: the recipe's.")]
_Once = Annotated[
    bool, typer.Option("--once", help="Send what is there and end, instead of following until the run ends.")
]
_Plan = Annotated[bool, typer.Option("--dry-run", help="Print what would be sent and open no tracker.")]


def sink(
    run: _Run,
    to: _To,
    project: _Project = "etude",
    name: _Name = "",
    once: _Once = False,
    dry_run: _Plan = False,
    json: Json = False,
) -> Answer:
    """Follow a run and send its metrics to trackio or wandb. Training never waits for it; called again it goes on."""
    from etude.evaluate.report.query.tables import check_run
    from etude.evaluate.report.sinks.follow import EVERY_S, MetricsFollower, kept_place, opening
    from etude.evaluate.report.sinks.package import open_sink
    from etude.evaluate.report.working import at_work

    check_run(run)
    opened = opening(run, project, name)
    if dry_run:
        events = run / "events.jsonl"
        waiting = (events.stat().st_size if events.is_file() else 0) - kept_place(run, to)
        document = {"to": to, "project": opened.project, "name": opened.name, "waiting_bytes": waiting}
        return Answer(
            document, f"{waiting} bytes of events would go to {to}, project {opened.project}, run {opened.name}"
        )
    tracker = open_sink(to, opened)
    follower = MetricsFollower(run, to, tracker, wait=time.sleep)
    try:
        while True:
            working = at_work(run)  # asked before reading: what a run writes last is then read after it
            follower.poll()
            if once or not working:
                break
            print(f"\r{follower.sent} steps sent to {to}", end="", file=sys.stderr, flush=True)
            time.sleep(EVERY_S)
    finally:
        tracker.close()
    return Answer({"to": to, "sent": follower.sent, "place": follower.place}, f"{follower.sent} steps sent to {to}")
