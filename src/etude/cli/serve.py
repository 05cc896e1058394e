"""`etude serve`: a checkpoint as an OpenAI-compatible server."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from etude.cli.answer import Answer
from etude.cli.option import Json

if TYPE_CHECKING:
    from etude.learn.serve.serving import RunningServer


Checkpoint = Annotated[
    str,
    typer.Argument(
        metavar="DIR|NAME",
        help="A Hugging Face directory with tokenizer.json, or a model's name, which is downloaded first.",
    ),
]
Host = Annotated[str, typer.Option("--host", help="Address to listen on; another than loopback needs a key.")]
Port = Annotated[int, typer.Option("--port", min=0, max=65535, help="Port to listen on; 0 picks a free one.")]
Sessions = Annotated[int, typer.Option("--sessions", min=1, max=1024, help="Answers that are computed at once.")]
Queue = Annotated[int, typer.Option("--queue", min=0, help="Answers that may wait for a session; more get 429.")]
Context = Annotated[
    int | None,
    typer.Option("--context", min=2, help="Tokens of prompt and answer together. Default: the model's, at most 4096."),
]
Threads = Annotated[int, typer.Option("--threads", min=1, help="Threads of one matrix product.")]
KeyEnv = Annotated[
    str | None,
    typer.Option("--api-key-env", metavar="NAME", help="Variable with the key that clients must send. Default: none."),
]
ServedName = Annotated[
    str | None,
    typer.Option("--served-name", metavar="NAME", help="The model's name in requests. Default: the checkpoint's."),
]


def serve(
    checkpoint: Checkpoint,
    host: Host = "127.0.0.1",
    port: Port = 8000,
    sessions: Sessions = 8,
    queue: Queue = 64,
    context: Context = None,
    threads: Threads = 1,
    api_key_env: KeyEnv = None,
    served_name: ServedName = None,
    json: Json = False,
) -> Answer:
    """Serve a checkpoint to OpenAI clients until stopped: chat, completions, tools, streams and logprobs."""
    from etude.cli.model import NAMES
    from etude.core.redact.keys import api_key
    from etude.learn.model.named_checkpoint import find_checkpoint
    from etude.learn.serve.served_model import open_model
    from etude.learn.serve.serving import ServeOptions, serve_until_stopped

    key = "" if api_key_env is None else api_key(api_key_env)
    if api_key_env is not None and not key:
        raise ValueError(f"--api-key-env {api_key_env}: the variable is not set; export {api_key_env}=KEY")
    folder, title = find_checkpoint(checkpoint)
    if not (folder / "config.json").is_file():
        raise FileNotFoundError(f"{folder} has no config.json; give a checkpoint's folder, or a name: {NAMES}")
    name = served_name or title
    model, thread = open_model(folder, name, sessions=sessions, context=context, threads=threads)
    options = ServeOptions(host, port, sessions, queue, key)
    with thread:
        running = asyncio.run(serve_until_stopped(model, thread, options, lambda line: print(line, file=sys.stderr)))
    return _summary(name, running)


def _summary(name: str, running: RunningServer) -> Answer:
    metrics = running.state.metrics
    document = {
        "address": running.address, "model": name, "requests": metrics.requests.total(),
        "prompt_tokens": metrics.prompt_tokens, "cached_tokens": metrics.cached_tokens,
        "completion_tokens": metrics.completion_tokens,
    }  # fmt: skip
    return Answer(document, f"served {document['requests']} requests")
