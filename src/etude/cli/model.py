"""`etude model`: is this checkpoint directory one to train and serve?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from etude.cli.answer import Answer
from etude.cli.option import Json

app = typer.Typer(no_args_is_help=True, help="Fetch a published checkpoint; prove one before it is trained or served.")

_Checkpoint = Annotated[
    str,
    typer.Argument(
        metavar="DIR|NAME",
        help="A Hugging Face directory with tokenizer.json, or a hub name, which is downloaded first.",
    ),
]
_Family = Annotated[
    str | None,
    typer.Option("--family", metavar="NAME", help="Chat format if the checkpoint's files don't name one: qwen3, ..."),
]


@app.command()
def check(checkpoint: _Checkpoint, family: _Family = None, json: Json = False) -> Answer:
    """Prove that the model code loads it, its template, tool parsing and round trip: turns read back as said, prompts only grow."""
    from dataclasses import asdict

    from etude.agent.chat.check import check_model
    from etude.learn.model.loadable import loadable
    from etude.learn.weights.hub_folder import checkpoint_folder

    folder = checkpoint_folder(checkpoint)
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} is no directory; give a checkpoint's, or a hub name: owner/name[@revision]")
    report = check_model(folder, family)
    report.run("model code", lambda: loadable(folder))
    width = max(len(found.name) for found in report.checks)
    marks = {"ok": "ok", "failed": "NO", "skipped": "--", "incomplete": "!!"}
    lines = [
        f"{marks[found.state]}  {found.name:{width}}  {found.detail}" + (f"; {found.remedy}" if found.remedy else "")
        for found in report.checks
    ]
    failed = [found.name for found in report.checks if found.state == "failed"]
    missing = [found.detail for found in report.checks if found.state == "incomplete"]
    lines.append("; but ".join(["sound", *missing]) if report.sound else f"not sound: {', '.join(failed)}")
    return Answer({**asdict(report), "sound": report.sound}, "\n".join(lines), int(not report.sound))


@app.command()
def fetch(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A hub name: owner/name or owner/name@revision.")],
    revision: Annotated[
        str | None, typer.Option("--revision", metavar="R", help="Branch, tag or commit. Default: main.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="Copy the checkpoint to this new folder. Default: cache."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="State what would be downloaded; fetch config and tokenizer alone.")
    ] = False,
    json: Json = False,
) -> Answer:
    """Download a published checkpoint: config, tokenizer, templates, licence and safetensors, resumed and checked by digest."""
    from etude.learn.weights.hub_fetch import fetch_from_hub

    found = fetch_from_hub(name, revision, out, dry_run=dry_run)
    return Answer(found.document(), found.text())
