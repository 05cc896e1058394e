"""`etude agent`: one coding agent in a folder; at a terminal, headless with -p, in the background, or in an editor with --acp."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etude.cli.agent import options
from etude.cli.agent.flags import Flags
from etude.cli.answer import Answer
from etude.core.events.stopping import run_async

if TYPE_CHECKING:
    from etude.agent.app.headless import AgentJob


def agent(
    prompt: options.Prompt = None, model: options.Model = None, name: options.Name = None, key_env: options.KeyEnv = None,
    preset: options.Preset = None, effort: options.Effort = None, max_turns: options.MaxTurns = None,
    context: options.Context = None, sandbox: options.Sandbox = None, network: options.Network = False,
    approval: options.Approval = None, folder: options.Folder = None, resume: options.Resume = None,
    go_on: options.Continue = False, undo: options.Undo = None, everything: options.All = False,
    background: options.Background = False, acp: options.Acp = False, test: options.Test = None, omit: options.Omit = None,
    max_tokens_field: options.TokenField = None, no_index: options.NoIndex = False, no_mcp: options.NoMcp = False, config: options.ConfigFile = None,
    json: options.Json = False,
) -> Answer:  # fmt: skip
    """A coding agent in this folder, with any OpenAI-compatible model or a local checkpoint.

    Exit status: 0 answered, 1 gave up (limits, refused), 2 wrong usage, 3 out of reach, 130 stopped.
    """
    given = locals()
    from etude.agent.app.errors import AppError

    flags = Flags(**{field.name: given[field.name] for field in fields(Flags)})
    try:
        if undo is not None:
            return _undone(undo, flags, everything, json)
        if acp:
            return _serve(flags)
        return _go(flags)
    except AppError as error:
        return _failed(error, json)


def _go(flags: Flags) -> Answer:
    from etude.agent.app.errors import UsageError
    from etude.cli.agent.making import Making

    at_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    headless = flags.prompt is not None or flags.json or flags.background or not at_terminal
    made = Making(flags)
    session = made.session(_choose if not headless else None)
    prompt = flags.prompt
    if prompt is None and headless:
        prompt = "-" if not sys.stdin.isatty() else ""
    if prompt == "-":
        prompt = sys.stdin.buffer.read().decode(errors="replace")
    if prompt is not None and not prompt.strip():
        raise UsageError('no request: give one with -p "…", on stdin, or start at a terminal')
    job = made.job(prompt or "", session)
    if flags.background:
        from etude.agent.app.background.control import start_agent

        found = start_agent(job)
        text = f"{found.id} works in {found.tree} (branch {found.branch}); etude agents attach {found.id}"
        return Answer(found.to_json(), _document(found.to_json(), text, flags.json))
    return Answer({}, "", _headless(job, flags.json) if prompt else _interactive(job))


def _choose(lines: list[str]) -> int | None:
    """Which of the sessions the person means, counted from 0; None where they don't say."""
    for number, line in enumerate(lines, 1):
        print(f"{number:3}  {line}")
    try:
        words = input("which? [1] ").strip() or "1"
    except EOFError:
        return None
    return int(words) - 1 if words.isdecimal() and 1 <= int(words) <= len(lines) else None


def _headless(job: AgentJob, as_json: bool) -> int:
    from etude.agent.app.headless import run_headless, standard_sink

    return _run(run_headless(job, standard_sink(as_json)))


def _interactive(job: AgentJob) -> int:
    from etude.agent.app.terminal import run_terminal

    return _run(run_terminal(job))


def _serve(flags: Flags) -> Answer:
    from etude.agent.acp.server import serve
    from etude.cli.agent.making import Making

    run_async(serve(Making(flags).setup()))
    return Answer({}, "")


def _run(work: Coroutine[Any, Any, int]) -> int:
    try:
        return run_async(work)
    except asyncio.CancelledError:
        return 130


def _undone(named: str, flags: Flags, everything: bool, as_json: bool) -> Answer:
    from etude.agent.app.undo import undo_session

    done = run_async(undo_session(named, flags.folder or Path("."), everything))
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
