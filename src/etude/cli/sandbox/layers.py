"""`etude sandbox layers`: what is kept of snapshots and images, its health, and the way in and out."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from etude.cli.answer import Answer
from etude.cli.former import print_present_spelling
from etude.cli.option import Json
from etude.cli.sandbox.stores import StoreAt, opened, size

app = typer.Typer(no_args_is_help=True, help="Snapshots and the layers they are made of: list, gc, export, import.")

Ref = Annotated[str, typer.Argument(metavar="REF", help="A name, a digest, or its first eight digits.")]


@app.command("list")
def list_(
    store: StoreAt = None,
    verify: Annotated[
        bool,
        typer.Option("--verify", help="Read every layer whole; exit 1 if one is not what its digest says."),
    ] = False,
    json: Json = False,
) -> Answer:
    """Every snapshot, with what it takes and what goes with it."""
    from etude.sandbox.layers.usage import snapshot_usage

    with opened(store) as layers:
        found = snapshot_usage(layers)
    lines = [
        f"{one.digest[:12]}  {one.layers} layers  {size(one.bytes)}, {size(one.own_bytes)} of it alone"
        f"{'  image' if one.is_image else ''}{'  in use' if one.in_use else ''}  {', '.join(one.names)}".rstrip()
        for one in found
    ]
    listed = Answer({"snapshots": [asdict(one) for one in found]}, "\n".join(lines) or "nothing is kept here")
    if not verify:
        return listed
    verified = _verified(store)
    return Answer({**listed.document, **verified.document}, f"{listed.text}\n{verified.text}", verified.code)


@app.command()
def gc(
    patience_s: Annotated[
        float,
        typer.Option(
            "--older-than-s", min=0, help="Seconds that a snapshot without a name is kept after its last use."
        ),
    ] = 86400.0,
    store: StoreAt = None,
    json: Json = False,
) -> Answer:
    """Remove layers that no name refers to and no sandbox uses."""
    from etude.sandbox.layers.collect import collect

    with opened(store) as layers:
        found = collect(layers, patience_s=patience_s)
    text = f"removed: {found.snapshots} snapshots, {found.layers} layers, {found.drafts} drafts of killed processes"
    return Answer(asdict(found), text)


@app.command("verify", hidden=True)
def former_verify(store: StoreAt = None, json: Json = False) -> Answer:
    """Read every layer whole; exits 1 if one is not what its digest says."""
    print_present_spelling("sandbox layers verify", "sandbox layers list --verify")
    return _verified(store)


def _verified(store: Path | None) -> Answer:
    from etude.sandbox.layers.errors import LayerError
    from etude.sandbox.layers.usage import snapshot_usage
    from etude.sandbox.layers.verification import verify_layer as read

    problems: dict[str, str] = {}
    with opened(store) as layers:
        digests = {digest for one in snapshot_usage(layers) for digest in layers.resolve(one.digest).layers}
        for digest in sorted(digests):
            try:
                read(layers.layer(digest), digest)
            except LayerError as error:
                problems[digest] = str(error)
    lines = [f"{len(digests)} layers read, {len(problems)} damaged", *problems.values()]
    return Answer({"layers": len(digests), "problems": problems}, "\n".join(lines), int(bool(problems)))


@app.command("export")
def export_(
    ref: Ref,
    target: Annotated[Path, typer.Argument(metavar="FILE", help="The archive to write.")],
    store: StoreAt = None,
    json: Json = False,
) -> Answer:
    """Write a snapshot or image as an OCI archive, which any engine loads too."""
    from etude.sandbox.layers.export import export

    with opened(store) as layers, layers.hold(ref) as snapshot_usage, target.open("xb") as file:
        export(layers, snapshot_usage, file)
        written = file.tell()
    document = {"digest": snapshot_usage.snapshot.digest, "file": str(target), "bytes": written}
    return Answer(document, f"{target}: {snapshot_usage.snapshot.digest[:12]}, {size(written)}")


@app.command("import")
def import_(
    source: Annotated[Path, typer.Argument(metavar="FILE", help="Archive that `etude sandbox layers export` wrote.")],
    name: Annotated[str, typer.Option("--name", help="Name of the snapshot.")] = "",
    store: StoreAt = None,
    json: Json = False,
) -> Answer:
    """Read a snapshot in; its digest is the one that it had."""
    from etude.sandbox.layers.image import load

    with opened(store) as layers, load(layers, source, name=name) as snapshot_usage:
        document = {
            "digest": snapshot_usage.snapshot.digest,
            "layers": list(snapshot_usage.snapshot.layers),
            "name": name,
        }
    return Answer(document, f"{snapshot_usage.snapshot.digest}  {name}".rstrip())
