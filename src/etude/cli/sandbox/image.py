"""`etude sandbox image`: root file systems for sandboxes, by name."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from etude.cli.answer import Answer
from etude.cli.option import Json
from etude.cli.sandbox.stores import StoreAt, opened, size

if TYPE_CHECKING:
    from etude.sandbox.layers.store import PinnedSnapshot

app = typer.Typer(no_args_is_help=True, help="Root file systems for sandboxes: add, build, list, remove.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the image, e.g. debian:12.")]


@app.command()
def add(
    name: Name,
    source: Annotated[
        Path,
        typer.Argument(
            metavar="PATH", help="An OCI layout, a docker or podman save, a root file system (tar or folder)."
        ),
    ],
    store: StoreAt = None,
    json: Json = False,
) -> Answer:
    """Unpack an image into the store. Nothing is downloaded."""
    from etude.sandbox.snapshots import images

    with opened(store) as layers, images.add(layers, source, name) as snapshot_usage:
        return _made(name, snapshot_usage)


@app.command()
def build(
    name: Name,
    source: Annotated[
        Path, typer.Argument(metavar="PATH", help="A Dockerfile, a devcontainer.json, or a folder with one.")
    ] = Path("."),
    store: StoreAt = None,
    json: Json = False,
) -> Answer:
    """Build an image with podman or buildah, and unpack it into the store."""
    from etude.sandbox.snapshots import images

    with opened(store) as layers, images.build(layers, source, name) as snapshot_usage:
        return _made(name, snapshot_usage)


@app.command("list")
def list_(store: StoreAt = None, json: Json = False) -> Answer:
    """The images that have a name."""
    from etude.sandbox.layers.usage import snapshot_usage

    with opened(store) as layers:
        found = [one for one in snapshot_usage(layers) if one.is_image and one.names]
    lines = [f"{', '.join(one.names)}  {one.digest[:12]}  {one.layers} layers  {size(one.bytes)}" for one in found]
    return Answer({"images": [asdict(one) for one in found]}, "\n".join(lines) or "no image has a name here")


@app.command()
def remove(name: Name, store: StoreAt = None, json: Json = False) -> Answer:
    """Take a name away; what nothing else needs is collected."""
    from etude.sandbox.layers.collect import collect
    from etude.sandbox.layers.errors import UnknownSnapshot

    with opened(store) as layers:
        if not layers.names.take(name):
            raise UnknownSnapshot(
                f"no image {name!r} in {layers.root}; `etude sandbox image list` shows those that are"
            )
        found = collect(layers)
    return Answer({"name": name, **asdict(found)}, f"{name} is removed, and {found.layers} layers with it")


def _made(name: str, snapshot_usage: PinnedSnapshot) -> Answer:
    document = {"name": name, "digest": snapshot_usage.snapshot.digest, "layers": list(snapshot_usage.snapshot.layers)}
    return Answer(
        document, f"{name}: {snapshot_usage.snapshot.digest[:12]}, {len(snapshot_usage.snapshot.layers)} layers"
    )
