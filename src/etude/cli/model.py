"""`etude model`: is this checkpoint directory one to train and serve?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from etude.cli.answer import Answer
from etude.cli.option import Json

app = typer.Typer(no_args_is_help=True, help="Prove a checkpoint directory before it is trained or served.")

_Folder = Annotated[Path, typer.Argument(metavar="DIR", help="A Hugging Face directory with tokenizer.json.")]
_Family = Annotated[
    str | None,
    typer.Option("--family", metavar="NAME", help="Chat format if the checkpoint's files don't name one: qwen3, ..."),
]


@app.callback()
def _verbs() -> None:
    """Prove a checkpoint directory before it is trained or served."""  # keeps `check` a verb while it is the only one


@app.command()
def check(folder: _Folder, family: _Family = None, json: Json = False) -> Answer:
    """Prove that the model code loads it, its template, tool parsing and round trip: turns read back as said, prompts only grow."""
    from dataclasses import asdict

    from etude.agent.chat.check import check_model
    from etude.learn.model.loadable import loadable

    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} is no directory; give a checkpoint's")
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
