"""The command `etude`: one typer app; each verb is a thin file that loads its heavy rooms only when it runs.

Promise: `etude --help` opens in under half a second, because neither torch nor ray is imported here.
"""

from __future__ import annotations

import io
import logging
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from etude.cli import (
    ablate,
    agent,
    base,
    bench,
    capture,
    clean,
    corpus,
    doctor,
    index,
    model,
    reload,
    report,
    run,
    sandbox,
    session,
    simulate,
    stages,
    status,
    tasks,
    tokenizer,
    weights,
)
from etude.cli.answer import Interrupted, give
from etude.cli.empty_path import refuse_empty_paths
from etude.core.events.stopping import raise_when_stopped
from etude.core.redact.keys import MaskedRecord

HELP = "Train a coding agent end to end: base model, SFT, asynchronous RL in sandboxes, bench and report."


class Verbs(TyperGroup):
    """Typer answers KeyboardInterrupt with a bare status; what stopped a verb, and what is kept, must reach the person. No verb takes an empty
    path."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        refuse_empty_paths(self)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as stop:
            raise Interrupted(stop) from stop


app = typer.Typer(
    name="etude",
    cls=Verbs,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    suggest_commands=False,  # `cli.slips` suggests, within a small edit distance
    help=HELP,
)
app.command("agent", cls=agent.AgentCommand)(agent.agent)
app.add_typer(agent.app, name="agents")
app.command("run")(run.run)
app.command("pretrain")(stages.pretrain)
app.command("sft")(stages.sft)
app.command("rl")(stages.rl)
app.command("runs")(status.runs)
app.command("status")(status.status)
app.command("reload")(reload.reload)
app.command("simulate")(simulate.simulate)
app.add_typer(bench.app, name="bench")
app.command("ablate")(ablate.ablate)
app.add_typer(report.app, name="report")
app.add_typer(corpus.app, name="corpus")
app.add_typer(base.app, name="base")
app.add_typer(tokenizer.app, name="tokenizer")
app.add_typer(model.app, name="model")
app.add_typer(tasks.app, name="tasks")
app.add_typer(sandbox.app, name="sandbox")
app.add_typer(session.app, name="session")
app.add_typer(session.app, name="sessions", hidden=True)  # the same verbs: one collects sessions, and shows a session
app.add_typer(capture.app, name="capture")
app.add_typer(weights.app, name="weights")
app.add_typer(index.app, name="index")
app.command("doctor")(doctor.doctor)
app.command("clean")(clean.clean)


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
    sys.exit(give(lambda: app(standalone_mode=False), as_json="--json" in ours and not streams, words=words))


if __name__ == "__main__":
    main()
