"""The command `etude`: one typer app; each verb is a thin file that loads its heavy rooms only when it runs.

Promise: `etude --help` opens in under half a second, because neither torch nor ray is imported here.
"""

from __future__ import annotations

import typer

app = typer.Typer(name="etude", no_args_is_help=True, add_completion=False, help="Train a coding agent, end to end.")


@app.callback()
def root() -> None:
    """Train a coding agent, end to end: base model, SFT, asynchronous RL in sandboxes, bench and report."""


def main() -> None:
    """Entry point of the console script."""
    app()
