"""`etude sandbox`: what isolation works here, commands and shells inside it, what is alive, and how fast it is."""

from __future__ import annotations

import typer

from etude.cli.sandbox import bench, held, image, layers, probe, run, shell

app = typer.Typer(
    no_args_is_help=True, help="Probe the sandboxes of this machine, work in one, see what lives, measure."
)
app.command("probe")(probe.probe)
app.command("run", context_settings={"ignore_unknown_options": True})(run.run)
app.command("shell", context_settings={"ignore_unknown_options": True})(shell.shell)
app.command("list")(held.list_)
app.command("reap")(held.reap)
app.command("bench")(bench.bench)
app.add_typer(image.app, name="image")
app.add_typer(layers.app, name="layers")

__all__ = ["app"]
