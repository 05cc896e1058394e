"""`etude weights`: what a run's weight store holds, and whether every version can be reached bit by bit (promise 7)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from etude.cli.answer import Answer
from etude.cli.option import Json

app = typer.Typer(no_args_is_help=True, help="Show or verify a weight store.")

_Store = Annotated[Path, typer.Argument(metavar="DIR", help="A weight store, e.g. runs/laptop/rl/weights.")]


class NoStore(Exception):
    """The folder holds no weights."""


@app.command()
def show(store: _Store, json: Json = False) -> Answer:
    """List anchors and deltas with their sizes."""
    from etude.weights import inspect
    from etude.weights.store import WeightStore

    document = inspect.show(WeightStore(_existing(store)))
    lines = [f"{e['name']:16} version {e['version']:5}  {e['bytes'] / 1e3:10.1f} kB" for e in document["entries"]]
    ratio = document["mean_ratio"]
    lines.append(f"{document['anchors']} anchors, {document['deltas']} deltas, newest version {document['newest']}")
    lines += [f"a delta is {100 * ratio:.1f}% of an anchor on average"] if ratio is not None else []
    return Answer(document, "\n".join(lines))


@app.command()
def verify(store: _Store, json: Json = False) -> Answer:
    """Decode everything and reach every version once; exits 1 if something is damaged."""
    from etude.weights import inspect
    from etude.weights.store import WeightStore

    document = inspect.verify(WeightStore(_existing(store)))
    said = "whole" if document["whole"] else "\n".join(["damaged:", *document["problems"]])
    return Answer(
        document, f"{document['reached']} of {document['versions']} versions reached, {said}", not document["whole"]
    )


def _existing(store: Path) -> Path:
    if not store.is_dir():
        raise NoStore(f"{store} is no folder; give a weight store such as runs/laptop/rl/weights")
    return store
