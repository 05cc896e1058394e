"""Options that several verbs share, declared once so that they read the same everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from etude.agent.harness.preset_names import PRESET_NAMES, known_preset
from etude.cli.completion import complete_recipe

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout, everything else on stderr.")]
Recipes = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[RECIPE]...",
        autocompletion=complete_recipe,
        help="Recipe files, composed left to right; or a name such as laptop.",
    ),
]
Overrides = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Set one key, e.g. rl.group_size=4; repeatable.")
]
Out = Annotated[
    Path | None, typer.Option("--out", metavar="DIR", help="The run directory itself. Default: runs/<recipe name>/.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the resolved recipe and the plan, do nothing.")]
Address = Annotated[
    str | None,
    typer.Option(
        "--address",
        metavar="HOST:PORT",
        help="Run the rl stage on this Ray cluster (docs/cluster.md); short for --set cluster.address=ADDRESS.",
    ),
]


def preset_choice() -> dict[str, Any]:
    """Arguments of an option that takes a built-in preset or one by import path."""
    return {
        "metavar": f"[{'|'.join(PRESET_NAMES)}|MODULE:NAME]",
        "parser": _preset,
        "autocompletion": lambda incomplete: [name for name in PRESET_NAMES if name.startswith(incomplete)],
    }


def _preset(text: str) -> str:
    try:
        return known_preset(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
