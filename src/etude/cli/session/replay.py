"""`etude session replay`: the promise that a recorded session can be run again (promise 1), for a person to check."""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from etude.cli.answer import Answer
from etude.cli.option import Json
from etude.cli.session.places import Places, piles
from etude.core.events.stopping import run_async

if TYPE_CHECKING:
    from etude.agent.harness.replay import ReplayDifference

Plugins = Annotated[
    list[str] | None,
    typer.Option(
        "--plugin",
        metavar="MODULE:NAME",
        help="A preset by import path that sessions may name; repeatable. Its code runs on this machine.",
    ),
]

Checkpoint = Annotated[
    Path | None,
    typer.Option(
        "--checkpoint", metavar="DIR|NAME", help="The tokenizer's folder or a model's name. Default: the run's own."
    ),
]


def replay(
    places: Places,
    sample: Annotated[
        int | None,
        typer.Option(
            "--sample",
            metavar="N",
            min=1,
            help="Number of random sessions to replay of each folder and each stage of a run.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Seed of that draw.")] = 0,
    checkpoint: Checkpoint = None,
    recipe: Annotated[
        Path | None, typer.Option("--recipe", help="The recipe that made the task. Default: the run's own.")
    ] = None,
    plugins: Plugins = None,
    json: Json = False,
) -> Answer:
    """Replay the decisions of sessions in fresh sandboxes and compare every entry; exit 1 at a difference and name its byte."""
    files = [file for place in places for pile in piles(place) for file in _draw(pile, sample, seed)]
    if len(files) > 1:
        print(f"replaying {len(files)} sessions", file=sys.stderr, flush=True)
    found = run_async(_replay(files, checkpoint, recipe, plugins or []))
    differences = [{"file": str(file), "difference": str(d)} for file, (_, d) in zip(files, found, strict=True) if d]
    entries = sum(count for count, _ in found)
    document = {
        "sessions": len(files),
        "entries": entries,
        "equal": not differences,
        "difference": differences[0]["difference"] if differences else None,
        "differences": differences,
    }
    lines = [f"{d['file']} differs at {d['difference']}" for d in differences]
    lines.append(f"{len(files)} sessions, {entries} entries: {f'{len(differences)} differ' if lines else 'equal'}")
    return Answer(document, "\n".join(lines), int(bool(differences)))


def _draw(files: list[Path], count: int | None, seed: int) -> list[Path]:
    return files if count is None or count >= len(files) else random.Random(seed).sample(files, count)


async def _replay(
    files: list[Path], checkpoint: Path | None, recipe: Path | None, plugins: list[str]
) -> list[tuple[int, ReplayDifference | None]]:
    """For each file how many entries it has and where its replay left it."""
    from etude.cli.replayer import Replayer
    from etude.core.trace.reader import read_session

    found: list[tuple[int, ReplayDifference | None]] = []
    async with Replayer(checkpoint, recipe, plugins) as replayer:
        for file in files:
            session = read_session(file)
            found.append((len(session.entries), await replayer.replay(session, file)))
    return found
