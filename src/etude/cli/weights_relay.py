"""`etude weights relay`: keep a region's copy of a weight store up to date."""

from __future__ import annotations

import json as jsonlib
import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from etude.cli.answer import Answer
from etude.cli.option import Json
from etude.core.events.stopping import StopFlag


def relay(
    source: Annotated[str, typer.Argument(metavar="FROM", help="The run's store: a folder or s3://bucket/prefix.")],
    target: Annotated[str, typer.Argument(metavar="TO", help="The region's own store, empty at first.")],
    follow: Annotated[
        bool,
        typer.Option("--follow/--once", help="Copy new versions until Ctrl-C, or copy what is there and exit."),
    ] = False,
    poll_s: Annotated[
        float, typer.Option(min=0.01, help="Seconds between two looks at a FROM with nothing new.")
    ] = 0.5,
    json: Json = False,
) -> Answer:
    """Copy every object of FROM that leads to its newest version to TO, once; may be killed and started again anywhere."""
    from etude.learn.weights.relay import WeightRelay
    from etude.learn.weights.relay_ends import source_store, target_store

    say = lambda event: typer.echo(
        jsonlib.dumps({"time": round(time.time(), 3), **event}) if json else said(event), err=True
    )
    one = WeightRelay(source_store(_place(source)), target_store(_place(target)), say)
    if follow:
        with StopFlag() as stop:
            one.follow(stop, poll_s)
    else:
        one.once()
    document = {"newest": one.newest, **asdict(one.crossed)}
    return Answer(document, f"version {one.newest} is in {target}; {one.crossed.bytes / 1e6:.2f} MB crossed the link")


def said(event: dict[str, Any]) -> str:
    """An event for people."""
    match event:
        case {"event": "copied"}:
            behind = f", {event['newest']} is out" if event["newest"] != event["version"] else ""
            return f"{event['name']}: {event['bytes'] / 1e3:.1f} kB in {event['seconds']:.2f} s{behind}"
        case {"event": "waits"}:
            return f"waits: {event['reason']}"
        case {"event": "goes_on"}:
            return f"goes on after {event['after_s']:g} s"
        case {"event": "passes_by"}:
            return f"{event['name']} is left for now: version {event['newest']} is out"
        case {"event": "broken"}:
            return f"{event['name']} can't be read and is walked around: {event['reason']}"
        case {"event": "wedged"}:
            return f"no way leads to version {event['newest']}; version {event['held']} stays until the source heals by an anchor"
        case {"event": "damaged"}:
            return f"damaged here, to be copied again: {', '.join(event['names'])}"
    return str(event)


def _place(place: str) -> str:
    return place if "://" in place else str(Path(place).absolute())
