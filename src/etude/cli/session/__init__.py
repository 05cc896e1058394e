"""`etude session`: recorded sessions listed, read, compared, exported, imported, run again, tied to commits, forgotten."""

from __future__ import annotations

import typer

from etude.cli.session.bring import bring
from etude.cli.session.check import check
from etude.cli.session.collect import collect
from etude.cli.session.diff import diff
from etude.cli.session.export import export
from etude.cli.session.fidelity import former_fidelity
from etude.cli.session.forget import forget_session
from etude.cli.session.link import link
from etude.cli.session.listing import list_sessions
from etude.cli.session.replay import replay
from etude.cli.session.show import show
from etude.cli.session.signals import signals
from etude.cli.settings_command import settings_command

app = typer.Typer(
    no_args_is_help=True,
    help="Read, compare, export, import, replay and link recorded sessions: of use, demonstrations, RL's, the bench's.",
)
app.command("list")(list_sessions)
app.command("show")(show)
app.command("export")(export)
app.command("diff")(diff)
app.command("import")(bring)
app.command(
    "collect", cls=settings_command("--policy", "--tasks", "--out", "--per-task", "--tries", "--count", "--max-cost")
)(collect)
app.command("fidelity", hidden=True)(former_fidelity)
app.command("check")(check)
app.command("replay")(replay)
app.command("link")(link)
app.command("signals")(signals)
app.command("forget")(forget_session)

__all__ = ["app", "list_sessions", "replay", "show"]
