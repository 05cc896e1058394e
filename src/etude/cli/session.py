"""`etude session`: read a recorded session, or run it again in a fresh sandbox and compare (promise 1)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from etude.cli.answer import Answer
from etude.cli.option import Json

if TYPE_CHECKING:
    from etude.harness.replay import Difference
    from etude.trace.session import Session

app = typer.Typer(no_args_is_help=True, help="Show or replay a recorded session.")

_File = Annotated[Path, typer.Argument(metavar="FILE", help="A session's .jsonl file.")]


class ReplayError(Exception):
    """The session can't be replayed from what was given."""


@app.command()
def show(file: _File, json: Json = False) -> Answer:
    """Print a session's entries in order."""
    from etude.trace.reader import read_session

    session = read_session(file)
    header = session.header
    segments = session.segments()
    document = {
        "session_id": header.session_id,
        "task_id": header.task_id,
        "policy": header.policy,
        "harness": header.harness,
        "segments_tokens": [len(s) for s in segments],
        "sampled_tokens": int(sum(s.sampled.sum() for s in segments)),
        "entries": [entry.to_json() for entry in session.entries],
    }
    lines = [f"session {header.session_id}  task {header.task_id}  policy {header.policy}"]
    lines += [f"{e.at_s:8.3f} s  {e.type:11} {_brief(e.data)}" for e in session.entries]
    return Answer(document, "\n".join(lines))


@app.command()
def replay(
    file: _File,
    checkpoint: Annotated[
        Path | None, typer.Option("--checkpoint", metavar="DIR", help="The policy's checkpoint, for its tokenizer.")
    ] = None,
    recipe: Annotated[
        Path | None, typer.Option("--recipe", help="The recipe that made the task. Default: the run's own.")
    ] = None,
    json: Json = False,
) -> Answer:
    """Run a session's decisions again in a fresh sandbox and compare every entry; exits 1 at a difference."""
    from etude.trace.reader import read_session

    session = read_session(file)
    difference = asyncio.run(_replay(session, _recipe_of(file, recipe), checkpoint))
    document = {
        "session_id": session.header.session_id,
        "entries": len(session.entries),
        "equal": difference is None,
        "difference": None if difference is None else str(difference),
    }
    text = f"{len(session.entries)} entries, equal" if difference is None else f"differs at {difference}"
    return Answer(document, text, int(difference is not None))


async def _replay(session: Session, recipe: Path | None, checkpoint: Path | None) -> Difference | None:
    from etude.factory.exercises.source import ExerciseSource
    from etude.harness.replay import replay as run_again
    from etude.recipe.read import read_recipe
    from etude.sandbox.pool import open_pool
    from etude.sandbox.protocol import SandboxSpec

    settings = read_recipe([recipe] if recipe is not None else [])
    task = ExerciseSource(settings.exercises).task(session.header.task_id)
    renderer = _renderer(session, checkpoint)
    pool = await open_pool(settings.sandbox)
    try:
        files = {path: text.encode() for path, text in task.files.items()}
        return await run_again(session, await pool.create(SandboxSpec(files=files)), renderer=renderer)
    finally:
        await pool.close()


def _renderer(session: Session, checkpoint: Path | None) -> Any:
    if not session.header.takes_tokens:
        return None
    if checkpoint is None:
        raise ReplayError("this session holds tokens: name the checkpoint whose tokenizer made them (--checkpoint DIR)")
    from etude.chat.nano import NanoRenderer

    return NanoRenderer.load(checkpoint / "tokenizer.json")


def _recipe_of(file: Path, named: Path | None) -> Path | None:
    """The recipe named, else that of the run directory the file lies in, else the defaults (None)."""
    if named is not None:
        return named
    return next((p / "recipe.toml" for p in file.absolute().parents if (p / "recipe.toml").is_file()), None)


def _brief(data: dict[str, Any]) -> str:
    """One line of an entry, short enough for a terminal."""
    text = " ".join(f"{key}={value!r}" for key, value in data.items() if value not in ("", None, [], {}))
    return text if len(text) <= 160 else text[:159] + "…"
