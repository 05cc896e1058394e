"""`etude capture`: an endpoint that any agent can be pointed at, and whose every session becomes training data."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from etude.cli.answer import Answer
from etude.cli.option import Json
from etude.cli.settings_command import settings_command
from etude.core.events.stopping import run_async
from etude.core.redact.keys import api_key

if TYPE_CHECKING:
    from etude.agent.chat.renderer import Renderer
    from etude.agent.policy.protocol import Policy
    from etude.agent.proxy.book import SessionRegistry
    from etude.agent.proxy.settings import CaptureSettings

app = typer.Typer(no_args_is_help=True, help="Capture the sessions of other agents: an endpoint they are pointed at.")


Result = TypeVar("Result")


class CaptureError(Exception):
    """What was asked for can't be served."""


@dataclasses.dataclass(frozen=True)
class Upstream:
    """How an endpoint is asked: its model's name and key, and its differences from other endpoints. `command`: the command line that was run."""

    name: str
    key_env: str
    omit: tuple[str, ...]
    max_tokens_field: str
    command: str


Model = Annotated[
    str,
    typer.Option(
        "--model", metavar="URL|DIR|NAME", help="Model that answers: an OpenAI-compatible endpoint or a checkpoint."
    ),
]
Name = Annotated[str, typer.Option("--name", help="The model's name at the endpoint.")]
KeyEnv = Annotated[str, typer.Option("--key-env", metavar="VARIABLE", help="The variable with that endpoint's key.")]
Format = Annotated[
    Path | None,
    typer.Option(
        "--tokens", metavar="DIR", help="Checkpoint whose format the turns are recorded in as tokens; only with a URL."
    ),
]
Sessions = Annotated[Path, typer.Option("--sessions", metavar="DIR", help="Folder that the sessions are written to.")]
MaxTokens = Annotated[
    int, typer.Option("--max-tokens", min=1, help="Maximum answer tokens if the agent names no limit.")
]
Context = Annotated[
    int, typer.Option("--context", min=64, help="Context window of a checkpoint in tokens, prompt and answer together.")
]
Allow = Annotated[
    list[str] | None, typer.Option("--allow", metavar="FIELD", help="A request field to let through without effect.")
]
Omit = Annotated[
    list[str] | None,
    typer.Option(
        "--omit", metavar="FIELD", help="Request field that the upstream endpoint refuses; it is left out; repeatable."
    ),
]
TokenField = Annotated[
    str,
    typer.Option(
        "--max-tokens-field",
        metavar="NAME",
        help="Request field of the upstream endpoint for the limit of answer tokens.",
    ),
]
Task = Annotated[str, typer.Option("--task", metavar="ID", help="The task that the session is of.")]
Host = Annotated[
    str, typer.Option("--host", help="The address to listen on; not loopback: ETUDE_CAPTURE_KEY is needed.")
]
Port = Annotated[int, typer.Option("--port", min=0, max=65535, help="Port to listen on; 0 picks a free one.")]


@app.command(cls=settings_command("--model", "--name", "--sessions", "--host", "--port"))
def serve(
    model: Model,
    name: Name = "default",
    key_env: KeyEnv = "OPENAI_API_KEY",
    tokens: Format = None,
    sessions: Sessions = Path("sessions"),
    max_tokens: MaxTokens = 4096,
    context: Context = 4096,
    allow: Allow = None,
    omit: Omit = None,
    max_tokens_field: TokenField = "max_tokens",
    host: Host = "127.0.0.1",
    port: Port = 8321,
    json: Json = False,
) -> Answer:
    """Serve until stopped. POST /sessions gives an agent its key."""
    from etude.agent.proxy.serving import serving
    from etude.agent.proxy.settings import CaptureSettings

    settings = CaptureSettings(sessions, max_tokens, context, allowed=frozenset(allow or ()))
    operator_key = api_key("ETUDE_CAPTURE_KEY")

    async def until_stopped(book: SessionRegistry) -> None:
        await _read_list(book)
        async with serving(book, host=host, port=port, operator_key=operator_key) as address:
            print(f"{book.policy.name} answers at {address}; sessions go to {sessions}/", file=sys.stderr)
            print(f"curl -X POST {address}/sessions -H 'content-type: application/json' -d '{{}}'", file=sys.stderr)
            await asyncio.Event().wait()

    upstream = Upstream(name, key_env, tuple(omit or ()), max_tokens_field, "etude capture serve")
    with _book(model, upstream, tokens, settings) as book:
        run_async(until_stopped(book))
    return Answer({}, "")


@app.command(context_settings={"ignore_unknown_options": True})
def run(
    command: Annotated[list[str], typer.Argument(metavar="-- COMMAND...", help="The agent, with its arguments.")],
    model: Model,
    name: Name = "default",
    key_env: KeyEnv = "OPENAI_API_KEY",
    tokens: Format = None,
    sessions: Sessions = Path("sessions"),
    max_tokens: MaxTokens = 4096,
    context: Context = 4096,
    allow: Allow = None,
    omit: Omit = None,
    max_tokens_field: TokenField = "max_tokens",
    task: Task = "",
    json: Json = False,
) -> Answer:
    """Run an agent as one session, with the endpoint and key in its environment. The exit status is the agent's."""
    from etude.agent.proxy.launch import environment, launch
    from etude.agent.proxy.serving import serving
    from etude.agent.proxy.settings import CaptureSettings

    settings = CaptureSettings(sessions, max_tokens, context, allowed=frozenset(allow or ()))

    async def whole(book: SessionRegistry) -> tuple[int, dict[str, Any]]:
        await _read_list(book)
        async with serving(book) as address:
            session, key = book.open(task)
            status = await launch(command, environment(address, key))
            return status, await session.end("done" if status == 0 else "stopped")

    upstream = Upstream(name, key_env, tuple(omit or ()), max_tokens_field, "etude capture run")
    with _book(model, upstream, tokens, settings) as book:
        status, summary = run_async(whole(book))
    return Answer({**summary, "exit_status": status}, _text(summary), status)


def _text(summary: dict[str, Any]) -> str:
    if summary["file"] is None:
        return "the agent asked nothing: does it read OPENAI_BASE_URL or ANTHROPIC_BASE_URL?"
    names = ("turns", "samples", "branches", "forks", "replayed", "sampled_tokens")
    counts = ", ".join(f"{summary[name]} {name.replace('_', ' ')}" for name in names)
    return f"{summary['file']}: {counts}"


async def _read_list(book: SessionRegistry) -> None:
    """Find out whether an upstream endpoint returns tokens."""
    from etude.agent.policy.openai import OpenAIPolicy

    if isinstance(book.policy, OpenAIPolicy):
        await book.policy.read_list()


@contextlib.contextmanager
def _book(model: str, upstream: Upstream, tokens: Path | None, settings: CaptureSettings) -> Iterator[SessionRegistry]:
    """The endpoint's book; its policy is freed at the end. Raises CaptureError."""
    from etude.agent.chat.load import load_renderer
    from etude.agent.proxy.book import SessionRegistry
    from etude.learn.model.named_checkpoint import find_checkpoint

    try:
        if model.startswith(("http://", "https://")):
            from etude.agent.policy.openai import OpenAIPolicy

            policy = OpenAIPolicy(
                upstream.name, base_url=model, api_key_env=upstream.key_env, omit=upstream.omit,
                max_tokens_field=upstream.max_tokens_field, command=upstream.command,
            )  # fmt: skip
            renderer = load_renderer(find_checkpoint(str(tokens))[0]) if tokens is not None else None
            yield SessionRegistry(policy, dataclasses.replace(settings, context_tokens=None), renderer)
            return
        folder, title = find_checkpoint(model)
        if not (folder / "config.json").is_file():
            raise CaptureError(f"--model {model} is neither an http(s) address nor a checkpoint's folder (config.json)")
        if tokens is not None:
            raise CaptureError("--tokens is for --model URL; a checkpoint's sessions are in its own format")
        renderer = load_renderer(folder)
        with _engine(folder, title, settings, renderer) as policy:
            yield SessionRegistry(policy, settings, renderer)
    except ValueError as error:
        raise CaptureError(str(error)) from error


@contextlib.contextmanager
def _engine(folder: Path, name: str, settings: CaptureSettings, renderer: Renderer) -> Iterator[Policy]:
    from etude.learn.engine.policy import EnginePolicy
    from etude.learn.engine.settings import EngineSettings
    from etude.learn.model.checkpoint import load_checkpoint

    length = settings.context_tokens or EngineSettings().max_len
    engine = EnginePolicy.start(load_checkpoint(folder), EngineSettings(max_len=length), name=name, renderer=renderer)
    try:
        yield engine
    finally:
        engine.close()
