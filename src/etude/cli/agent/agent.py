"""`etude agent`: one coding agent in a folder; at a terminal, or headless with -p."""

from __future__ import annotations

import asyncio
import shlex
import sys
from collections.abc import Coroutine
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from etude.cli.answer import Answer

if TYPE_CHECKING:
    from etude.face.headless import Job
    from etude.face.model import Choice


class PresetName(StrEnum):
    nano = "nano"
    full = "full"
    search_replace = "search_replace"
    patch = "patch"
    minimal = "minimal"


class EffortName(StrEnum):
    low = "low"
    medium = "medium"
    high = "high"


class Walls(StrEnum):
    workspace = "workspace"
    none = "none"


class ApprovalName(StrEnum):
    never = "never"
    commands = "commands"
    writes = "writes"
    all = "all"


Prompt = Annotated[
    str | None, typer.Option("--prompt", "-p", help="Do this and end (headless). `-`: read it from stdin.")
]
Model = Annotated[
    str | None,
    typer.Option(
        "--model", "-m", envvar="ETUDE_MODEL", metavar="URL|DIR", help="An OpenAI-compatible endpoint, or a checkpoint."
    ),
]
Name = Annotated[
    str | None, typer.Option("--name", envvar="ETUDE_MODEL_NAME", help="The model's name at the endpoint.")
]
KeyEnv = Annotated[
    str, typer.Option("--key-env", metavar="VARIABLE", help="The environment variable with the API key.")
]
Preset = Annotated[PresetName | None, typer.Option("--preset", help="Tool names and prompts. Default: by the model.")]
Effort = Annotated[EffortName | None, typer.Option("--effort", help="How hard to try. Default: medium.")]
MaxTurns = Annotated[int | None, typer.Option("--max-turns", min=1, help="Turns of one request. Default: 100.")]
Sandbox = Annotated[
    Walls, typer.Option("--sandbox", help="workspace: only the folder can be written. none: as you are.")
]
Network = Annotated[bool, typer.Option("--network", help="Let sandboxed commands use the network.")]
Approval = Annotated[
    ApprovalName | None,
    typer.Option("--approval", help="What is asked for first. Default: never; without a sandbox: commands."),
]
Folder = Annotated[Path, typer.Option("--folder", "-C", metavar="DIR", help="Where to work. Default: here.")]
Resume = Annotated[str | None, typer.Option("--resume", metavar="ID|last", help="Go on with this session.")]
Continue = Annotated[bool, typer.Option("--continue", "-c", help="Go on with the last session of this folder.")]
Undo = Annotated[
    str | None,
    typer.Option("--undo", metavar="ID|last", help="Take back the edits of a session's last request, and end."),
]
All = Annotated[bool, typer.Option("--all", help="With --undo: all edits of the session.")]
Background = Annotated[bool, typer.Option("--background", help="In a worktree of its own; see `etude agents`.")]
Test = Annotated[str | None, typer.Option("--test", metavar="COMMAND", help="What the `test` tool runs (nano, full).")]
Omit = Annotated[
    list[str] | None, typer.Option("--omit", metavar="FIELD", help="A request field the endpoint refuses; repeatable.")
]
Json = Annotated[bool, typer.Option("--json", help="Print events, one JSON document a line (docs/harness.md).")]


def agent(
    prompt: Prompt = None, model: Model = None, name: Name = None, key_env: KeyEnv = "OPENAI_API_KEY",
    preset: Preset = None, effort: Effort = None, max_turns: MaxTurns = None, sandbox: Sandbox = Walls.workspace,
    network: Network = False, approval: Approval = None, folder: Folder = Path("."), resume: Resume = None,
    go_on: Continue = False, undo: Undo = None, everything: All = False, background: Background = False,
    test: Test = None, omit: Omit = None, json: Json = False,
) -> Answer:  # fmt: skip
    """A coding agent in this folder, with any OpenAI-compatible model or a local checkpoint.

    Exit status: 0 answered, 1 gave up (limits, refused), 2 wrong usage, 3 out of reach, 130 stopped.
    """
    from etude.face.errors import BadUse, FaceError
    from etude.face.model import Choice
    from etude.face.model import Preset as PresetWord
    from etude.face.place import Place
    from etude.trace.entry import Effort as EffortWord

    try:
        place = Place.at(folder, sandbox.value, network)
        named = "last" if go_on else resume
        if undo is not None:
            return _undone(undo, place, everything, json)
        kept, session = _kept(named, folder) if named else (None, None)
        if model is None and kept is None:
            raise BadUse(
                "no model: give --model URL [--name NAME] (any OpenAI-compatible endpoint) or --model DIR (a checkpoint), "
                "or set ETUDE_MODEL"
            )
        chosen = cast(EffortWord, effort.value if effort else kept.effort if kept else "medium")
        if model is not None:
            word = cast(PresetWord | None, preset.value if preset else None)
            choice = Choice(model, name, key_env, word, chosen, max_turns, tuple(omit or ()))
        else:
            assert kept is not None
            from dataclasses import replace

            choice = replace(kept, effort=chosen, max_turns=max_turns or kept.max_turns)
        return _go(choice, place, approval, prompt, session, shlex.split(test or ""), background, json)
    except FaceError as error:
        return _failed(error, json)


def _go(
    choice: Choice, place: Any, approval: ApprovalName | None, prompt: str | None, session: Path | None,
    test: list[str], background: bool, as_json: bool,
) -> Answer:  # fmt: skip
    from etude.face.errors import BadUse
    from etude.face.headless import Job
    from etude.face.talk import Ask

    policy = approval.value if approval else "commands" if place.walls == "none" else "never"
    at_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    if prompt is None and (as_json or background or not at_terminal):
        prompt = "-" if not sys.stdin.isatty() else ""
    if prompt == "-":
        prompt = sys.stdin.read()
    if prompt is not None and not prompt.strip():
        raise BadUse('no request: give one with -p "…", on stdin, or start at a terminal')
    job = Job(Ask(prompt or "", tuple(test)), choice, place, policy, session)
    if background:
        from etude.face.fleet.start import start

        found = start(job)
        text = f"{found.id} works in {found.tree} (branch {found.branch}); etude agents attach {found.id}"
        return Answer(found.to_json(), _document(found.to_json(), text, as_json))
    return Answer({}, "", _headless(job, as_json) if prompt else _interactive(job))


def _headless(job: Job, as_json: bool) -> int:
    from etude.face.headless import run_headless, standard

    return _run(run_headless(job, standard(as_json)))


def _interactive(job: Job) -> int:
    from etude.face.terminal import run_terminal

    return _run(run_terminal(job))


def _run(work: Coroutine[Any, Any, int]) -> int:
    try:
        return asyncio.run(work)
    except asyncio.CancelledError:
        return 130


def _kept(named: str, folder: Path) -> tuple[Choice | None, Path]:
    """What a session says about who held it, and its file."""
    from etude.face.talk import choice_of, find

    file, header = find(named, folder)
    return (choice_of(header) if header.recipe.get("model") else None), file


def _undone(named: str, place: Any, everything: bool, as_json: bool) -> Answer:
    from etude.face.taking_back import take_back

    done = asyncio.run(take_back(named, place.folder, everything))
    return Answer({}, _document(dict(done.data), f"took back {', '.join(done.paths)}", as_json))


def _failed(error: Any, as_json: bool) -> Answer:
    """One line on stderr; with --json also an event."""
    import json

    if as_json:
        print(json.dumps({"type": "error", "message": str(error)}), flush=True)
    print(f"error: {error}", file=sys.stderr, flush=True)
    return Answer({}, "", error.code)


def _document(document: dict[str, Any], text: str, as_json: bool) -> str:
    import json

    return json.dumps(document) if as_json else text
