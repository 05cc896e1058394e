"""`etude weights`: what a weight store holds, whether every version can be reached bit by bit (promise 7), what a sync costs."""

from __future__ import annotations

import json as jsonlib
import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from etude.cli.answer import Answer
from etude.cli.former import print_present_spelling
from etude.cli.option import Json
from etude.core.events.stopping import StopFlag

app = typer.Typer(no_args_is_help=True, help="Show, verify or relay a weight store; measure weight sync.")

_Store = Annotated[
    str, typer.Argument(metavar="STORE", help="A weight store: runs/laptop/rl/weights, or s3://bucket/prefix.")
]


class NoStore(Exception):
    """The folder holds no weights."""


@app.command()
def show(
    store: _Store,
    verify: Annotated[
        bool,
        typer.Option(
            "--verify", help="Decode everything and reach every version once; exit 1 if something is damaged."
        ),
    ] = False,
    json: Json = False,
) -> Answer:
    """List anchors and deltas with their sizes."""
    from etude.learn.weights import inspect
    from etude.learn.weights.store import WeightStore

    document = inspect.show(WeightStore(_existing(store)))
    lines = [f"{e['name']:16} version {e['version']:5}  {e['bytes'] / 1e3:10.1f} kB" for e in document["entries"]]
    ratio = document["mean_ratio"]
    lines.append(f"{document['anchors']} anchors, {document['deltas']} deltas, newest version {document['newest']}")
    lines += [f"a delta is {100 * ratio:.1f}% of an anchor on average"] if ratio is not None else []
    if not verify:
        return Answer(document, "\n".join(lines))
    verified = _verified(store)
    return Answer({**document, **verified.document}, "\n".join([*lines, verified.text]), verified.code)


@app.command("verify", hidden=True)
def former_verify(store: _Store, json: Json = False) -> Answer:
    """Decode everything and reach every version once; exits 1 if something is damaged."""
    print_present_spelling("weights verify", "weights show --verify")
    return _verified(store)


def _verified(store: str) -> Answer:
    from etude.learn.weights import inspect
    from etude.learn.weights.store import WeightStore

    document = inspect.verify(WeightStore(_existing(store)))
    said = "whole" if document["whole"] else "\n".join(["damaged:", *document["problems"]])
    return Answer(
        document, f"{document['reached']} of {document['versions']} versions reached, {said}", not document["whole"]
    )


@app.command()
def bench(
    megabytes: Annotated[int, typer.Option(min=1, help="Size of a synthetic bf16 state.")] = 256,
    learning_rate: Annotated[float, typer.Option(min=0, help="Learning rate of the synthetic Adam step.")] = 1e-6,
    real: Annotated[
        tuple[Path, Path] | None,
        typer.Option("--from", metavar="DIR DIR", help="A checkpoint and its successor instead."),
    ] = None,
    repeats: Annotated[int, typer.Option(min=1, help="Rates are medians over these.")] = 5,
    store: Annotated[
        str | None,
        typer.Option(
            metavar="STORE",
            help="Publish through this empty store (a folder or s3://bucket/prefix), not a temporary folder.",
        ),
    ] = None,
    json: Json = False,
) -> Answer:
    """Measure the delta of one step: size, encode and apply rates of one core, seconds through a store."""
    from etude.learn.weights.inspect import read_state, step
    from etude.learn.weights.measure import measure

    states = step(megabytes * 10**6, learning_rate) if real is None else (read_state(real[0]), read_state(real[1]))
    document = measure(*states, repeats, store)
    document["source"] = (
        f"synthetic step, learning rate {learning_rate:g}" if real is None else f"{real[0]} to {real[1]}"
    )
    return Answer(document, _bench_lines(document))


def _bench_lines(d: dict[str, Any]) -> str:
    giant, bars = d["extrapolated"], d["bars"]
    said = lambda name: "met" if bars[name]["met"] else "missed"
    return "\n".join(
        [
            f"{d['source']}: {d['raw_bytes'] / 1e6:.0f} MB, {100 * d['changed_share']:.2f}% of the elements and "
            f"{100 * d['changed_bytes_share']:.2f}% of the bytes changed",
            f"delta {d['delta_bytes'] / 1e6:.2f} MB: {100 * d['wire_share']:.2f}% of the raw state (bar 2%, {said('wire_share')}), "
            f"{100 * d['wire_share_of_anchor']:.2f}% of the compressed anchor ({d['anchor_bytes'] / 1e6:.0f} MB)",
            f"one core, CPU time, median of {d['repeats']} in turns with memcpy at {d['memcpy_gb_s']:.1f} GB/s:",
            f"  delta   encode {d['encode_gb_s']:.2f} GB/s (bar 1, {said('encode_gb_s')}), "
            f"apply {d['apply_gb_s']:.2f} GB/s (bar 2, {said('apply_gb_s')})",
            f"  anchor  encode {d['encode_anchor_gb_s']:.2f} GB/s, apply {d['apply_anchor_gb_s']:.2f} GB/s",
            f"through the store, wall time: publish {d['publish_delta_s']:.2f} s, catch up {d['catch_up_delta_s']:.2f} s "
            f"(anchor: {d['publish_anchor_s']:.2f} s and {d['catch_up_anchor_s']:.2f} s)",
            f"EXTRAPOLATED, not measured: 1T bf16 parameters at these rates on {giant['cores']} cores a side, "
            f"{giant['gbit_s']:.0f} Gbit/s: {giant['wire_bytes'] / 1e9:.1f} GB of {giant['full_bytes'] / 1e9:.0f} GB travel; "
            f"encode {giant['encode_s']:.0f} s, transfer {giant['transfer_s']:.0f} s, apply {giant['apply_s']:.0f} s",
        ]
    )


def _existing(store: str) -> str:
    if "://" not in store and not Path(store).is_dir():
        raise NoStore(f"{store} is no folder; give a weight store such as runs/laptop/rl/weights")
    return store


@app.command()
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
        jsonlib.dumps({"time": round(time.time(), 3), **event}) if json else describe_event(event), err=True
    )
    one = WeightRelay(source_store(_place(source)), target_store(_place(target)), say)
    if follow:
        with StopFlag() as stop:
            one.follow(stop, poll_s)
    else:
        one.once()
    document = {"newest": one.newest, **asdict(one.crossed)}
    return Answer(document, f"version {one.newest} is in {target}; {one.crossed.bytes / 1e6:.2f} MB crossed the link")


def describe_event(event: dict[str, Any]) -> str:
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
