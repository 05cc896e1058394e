"""`etude tasks`: tasks made of projects, imported, checked, listed; and the exercises that a recipe trains and benches on."""

from __future__ import annotations

import typer

from etude.cli.settings_command import settings_command
from etude.cli.tasks import (
    check,
    difficulty,
    export,
    fingerprint,
    import_,
    install,
    list_,
    make,
    mix,
    own,
    prepare,
    probe,
    show,
    stats,
)

app = typer.Typer(no_args_is_help=True, help="Make, import, check, list, show and export tasks.")
app.command("make", cls=settings_command("--projects", "--out", "--generators", "--count", "--budget", "--max-cost"))(
    make.make
)
app.command("install", cls=settings_command("--projects", "--builder", "--jobs", "--max-cost"))(install.install)
import_.app.command("exercises")(own.own_exercises)
import_.app.command("real")(own.own_real)
app.add_typer(import_.app, name="import")
app.command("prepare")(prepare.prepare)
app.command("check")(check.check)
app.command("list")(list_.list_tasks)
app.command("show")(show.show)
app.command("stats", hidden=True)(stats.former_stats)
app.command("difficulty")(difficulty.difficulty)
app.command("mix")(mix.mix)
app.command("export")(export.export)
app.command("probe")(probe.probe)
app.command("fingerprint")(fingerprint.fingerprint)
