"""The command `etude`: one typer app. A verb is a thin file that is imported when it is used (`cli.verbs`), and imports heavy packages when it runs.

Promise: `etude --help` opens in under half a second, because it imports no verb, and neither torch nor Ray.
"""

from __future__ import annotations

import io
import logging
import sys
from typing import Annotated, Any

import typer

from etude.cli.answer import Interrupted, give
from etude.cli.verbs import APP_SETTINGS, LazyGroup
from etude.core.events.stopping import raise_when_stopped
from etude.core.redact.keys import MaskedRecord

HELP = "Train a coding agent end to end: base model, SFT, asynchronous RL in sandboxes, bench and report."


class Verbs(LazyGroup):
    """Typer answers KeyboardInterrupt with a bare status; what stopped a verb, and what is kept, must reach the person."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as stop:
            raise Interrupted(stop) from stop


_SETTINGS: dict[str, Any] = {**APP_SETTINGS, "add_completion": True}
app = typer.Typer(name="etude", cls=Verbs, help=HELP, **_SETTINGS)


def _show_version(asked: bool) -> None:
    if asked:
        from etude import __version__

        print(f"etude {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Verbs are commands; this only holds the options before them."""


root.__doc__ = HELP


def main() -> None:
    """Entry point of the console script."""
    if not sys.platform.startswith("linux"):
        sys.exit("etude: this system has none of the Linux sandboxes this needs; use a Linux VM, on Windows WSL2.")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a file's name may have no encoding in UTF-8
    raise_when_stopped()
    logging.setLogRecordFactory(MaskedRecord)
    words = sys.argv[1:]
    ours = words[: words.index("--")] if "--" in words else words  # what follows is another's command
    streams = ours[:1] == ["agent"]  # its --json is a stream of documents, which it writes itself
    sys.exit(
        give(
            lambda: app(standalone_mode=False, prog_name="etude"), as_json="--json" in ours and not streams, words=words
        )
    )


if __name__ == "__main__":
    main()
