"""`etude session`: list and read recorded sessions, or run them again in fresh sandboxes and compare (promise 1)."""

from __future__ import annotations

import asyncio
import random
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from etude.cli.answer import Answer
from etude.cli.option import Json

if TYPE_CHECKING:
    from etude.harness.replay import Difference
    from etude.trace.session import Session

app = typer.Typer(
    no_args_is_help=True, help="List, show or replay recorded sessions: demonstrations, RL's, the bench's."
)

_File = Annotated[Path, typer.Argument(metavar="FILE", help="A session's .jsonl file.")]
_Places = Annotated[list[Path], typer.Argument(metavar="PATH...", help="Session files, or folders that hold them.")]

# How a session file begins, and no other file of a run (see trace.writer).
_FIRST_BYTES = b'{"type":"session"'


class NoSessions(Exception):
    """There is nothing to list or replay."""


@app.command("list")
def list_sessions(
    places: _Places,
    limit: Annotated[int, typer.Option("--limit", min=1, help="How many to print.")] = 40,
    json: Json = False,
) -> Answer:
    """List sessions with their task, length, policy versions and what they were worth."""
    from etude.trace.reader import read_session

    files = [file for place in places for file in session_files(place)]
    rows: list[dict[str, Any]] = [{"file": str(file), **_facts(read_session(file))} for file in files[:limit]]
    lines = [
        f"{row['file']}  {row['task_id']}  {row['turns']} turns, {row['sampled_tokens']} tokens, "
        f"{row['segments']} segments, {_versions(row['versions'])}, {_worth(row)}"
        for row in rows
    ]
    lines += [f"… {len(files)} in all; --limit shows more"] if len(files) > limit else []
    return Answer({"total": len(files), "sessions": rows}, "\n".join(lines))


@app.command()
def show(
    file: _File,
    tokens: Annotated[
        bool, typer.Option("--tokens", help="Every token, sampled ones with logprob and policy version.")
    ] = False,
    json: Json = False,
) -> Answer:
    """Print a session's entries in order."""
    from etude.trace.reader import read_session

    session = read_session(file)
    header = session.header
    document = {
        "session_id": header.session_id,
        "policy": header.policy,
        "harness": header.harness,
        "recipe": header.recipe,
        **_facts(session),
        "segments_tokens": [len(s) for s in session.segments()],
        "entries": [entry.to_json() for entry in session.entries],
    }
    lines = [f"session {header.session_id}  task {header.task_id}  policy {header.policy}"]
    lines += [f"{_versions(document['versions'])}, {_worth(document)}  {_brief(header.recipe)}"]
    lines += [f"{e.at_s:8.3f} s  {e.type:11} {_brief(e.data)}" for e in session.entries]
    if tokens:
        document["tokens"] = _tokens(session, _vocabulary(file))
        lines += [line for number, found in enumerate(document["tokens"]) for line in _table(number, found)]
    return Answer(document, "\n".join(lines))


@app.command()
def replay(
    places: _Places,
    sample: Annotated[
        int | None,
        typer.Option(
            "--sample", metavar="N", min=1, help="Of each folder, and each stage of a run, so many at random."
        ),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Seed of that draw.")] = 0,
    checkpoint: Annotated[
        Path | None, typer.Option("--checkpoint", metavar="DIR", help="The tokenizer's folder. Default: the run's own.")
    ] = None,
    recipe: Annotated[
        Path | None, typer.Option("--recipe", help="The recipe that made the task. Default: the run's own.")
    ] = None,
    json: Json = False,
) -> Answer:
    """Run sessions' decisions again in fresh sandboxes and compare every entry; exits 1 at a difference, naming its byte."""
    files = [file for place in places for pile in _piles(place) for file in _draw(pile, sample, seed)]
    if len(files) > 1:
        print(f"replaying {len(files)} sessions", file=sys.stderr, flush=True)
    found = asyncio.run(_replay(files, checkpoint, recipe))
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


def session_files(place: Path) -> list[Path]:
    """The file, or the session files under a folder, in order; output set aside by a rerun is left out."""
    if not place.is_dir():
        if not place.exists():
            raise FileNotFoundError(f"{place}: there is no such file or folder")
        return [place]
    inside = sorted(place.rglob("*.jsonl"))
    found = [f for f in inside if not any(part.endswith(".previous") for part in f.relative_to(place).parts)]
    found = [file for file in found if _begins(file)]
    if not found:
        raise NoSessions(
            f"{place} holds no session: runs keep theirs in sessions, rl/sessions, trials/sessions and bench/sessions"
        )
    return found


def _piles(place: Path) -> list[list[Path]]:
    """The session files of a place: those of a run directory by stage, so that a sample has some of each."""
    files = session_files(place)
    if not (place / "recipe.toml").is_file():
        return [files]
    stages: dict[str, list[Path]] = {}
    for file in files:
        stages.setdefault(file.relative_to(place).parts[0], []).append(file)
    return list(stages.values())


def _begins(file: Path) -> bool:
    with open(file, "rb") as opened:
        return opened.read(len(_FIRST_BYTES)) == _FIRST_BYTES


def _draw(files: list[Path], count: int | None, seed: int) -> list[Path]:
    return files if count is None or count >= len(files) else random.Random(seed).sample(files, count)


async def _replay(
    files: list[Path], checkpoint: Path | None, recipe: Path | None
) -> list[tuple[int, Difference | None]]:
    """For each file how many entries it has and where its replay left it."""
    from etude.cli.replayer import Replayer
    from etude.trace.reader import read_session

    found: list[tuple[int, Difference | None]] = []
    async with Replayer(checkpoint, recipe) as replayer:
        for file in files:
            session = read_session(file)
            found.append((len(session.entries), await replayer.replay(session, file)))
    return found


def _facts(session: Session) -> dict[str, Any]:
    """What a line of the list tells. `reward` is there once a training step used the session."""
    segments = session.segments()
    versions = sorted({int(v) for s in segments for v in s.versions[s.sampled]})
    verdicts = {key: value for entry in session.of("verdict") for key, value in entry.data.items()}
    return {
        "task_id": session.header.task_id,
        "turns": len(session.of("completion")),
        "segments": len(segments),
        "sampled_tokens": sum(int(s.sampled.sum()) for s in segments),
        "versions": versions,
        **{
            key: verdicts[key]
            for key in ("score", "reason", "step", "reward", "components", "advantage")
            if key in verdicts
        },
    }


def _worth(facts: dict[str, Any]) -> str:
    parts = [f"{key} {facts[key]:.3f}" for key in ("score", "reward", "advantage") if key in facts]
    return ", ".join(parts) or "not judged"


def _versions(versions: list[int]) -> str:
    if not versions or versions == [-1]:
        return "no policy versions"
    return f"version {versions[0]}" if len(versions) == 1 else f"versions {versions[0]}-{versions[-1]}"


def _tokens(session: Session, vocabulary: list[str]) -> list[dict[str, Any]]:
    return [
        {
            "tokens": [vocabulary[token] for token in s.ids.tolist()],
            "sampled": s.sampled.tolist(),
            "logprobs": [round(value, 4) for value in s.logprobs.tolist()],
            "versions": s.versions.tolist(),
        }
        for s in session.segments()
    ]


def _table(number: int, segment: dict[str, Any]) -> list[str]:
    rows = zip(segment["tokens"], segment["sampled"], segment["logprobs"], segment["versions"], strict=True)
    lines = [
        f"{logp:9.4f}  {version:4}  {text!r}" if ours else f"{'':17}{text!r}" for text, ours, logp, version in rows
    ]
    return [f"segment {number}: logprob, version, token", *lines]


def _vocabulary(file: Path) -> list[str]:
    """The vocabulary stored nearest to the session file."""
    from etude.trace.vocabulary import FILE_NAME, read_vocabulary

    folder = next((p for p in file.absolute().parents if (p / FILE_NAME).is_file()), None)
    if folder is None:
        raise NoSessions(f"no {FILE_NAME} lies above {file}, so its tokens can't be shown as text; leave out --tokens")
    return read_vocabulary(folder)


def _brief(data: dict[str, Any]) -> str:
    """One line of an entry, short enough for a terminal."""
    text = " ".join(f"{key}={value!r}" for key, value in data.items() if value not in ("", None, [], {}))
    return text if len(text) <= 160 else text[:159] + "…"
