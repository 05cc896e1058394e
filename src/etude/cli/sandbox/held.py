"""`etude sandbox list` and `reap`: list the sandboxes of this machine by its ledger, and remove the orphaned ones."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated, Any

import typer

from etude.cli.answer import Answer
from etude.cli.option import Json

if TYPE_CHECKING:
    from etude.sandbox.cleanup.journal_state import JournalState
    from etude.sandbox.cleanup.ledger import CleanupLedger


def list_(
    labels: Annotated[
        list[str] | None, typer.Option("--label", metavar="NAME=VALUE", help="Only those that carry it; repeatable.")
    ] = None,
    json: Json = False,
) -> Answer:
    """List the sandboxes of all pools of this user and their other recorded resources, with owner, age and whether the owner is alive."""
    wanted = _pairs(labels).items()
    rows = [row for state in _ledger().journal_states() for row in _rows(state) if wanted <= row["labels"].items()]
    dead = sum(1 for row in rows if not row["owner_lives"])
    lines = [_line(row) for row in rows] or ["nothing lives here"]
    if dead:
        lines.append(f"{dead} left by owners that died: etude sandbox reap")
    return Answer({"sandboxes": rows}, "\n".join(lines))


def reap(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be removed and remove nothing.")] = False,
    json: Json = False,
) -> Answer:
    """Remove what dead owners left: processes, control groups, folders, containers, user ranges, layers in memory. Touches nothing of the
    living; idempotent."""
    from etude.sandbox.cleanup.reaper import Reaper
    from etude.sandbox.layers.orphaned import orphaned_stores, remove_orphaned
    from etude.sandbox.lifetimes.periodic_reaper import describe

    ledger = _ledger()
    if dry_run:
        rows = [row for state in ledger.journal_states() if _left(state) for row in _rows(state)]
        memory = [str(place) for place in orphaned_stores()]
        lines = [_line(row) for row in rows] + [f"layers in memory {place}" for place in memory]
        return Answer({"would_reap": rows, "layers_in_memory": memory}, "\n".join(lines) or "nothing to remove")
    found = Reaper(ledger).reap()
    memory = [str(place) for place in orphaned_stores() if remove_orphaned(place)]
    lines = [describe(one) for one in found] + [f"layers in memory {place}" for place in memory]
    document = {"reaped": [dataclasses.asdict(one) for one in found], "layers_in_memory": memory}
    return Answer(document, "\n".join(lines) or "nothing to remove", int(any(one.stuck for one in found)))


def _ledger() -> CleanupLedger:
    from etude.pipeline.recipe.recipe import Recipe
    from etude.sandbox.cleanup.ledger import CleanupLedger

    return CleanupLedger.at(Recipe().sandbox.ledger)


def _left(state: JournalState) -> bool:
    """As the reaper sees it, but for owners that live and are silent: those it must have watched."""
    return not state.owner.is_foreign and not state.owner_is_alive()


def _rows(state: JournalState) -> list[dict[str, Any]]:
    return [
        {
            "id": entry.id,
            "kind": entry.kind,
            "labels": entry.labels,
            "since": entry.since,
            "owner": state.owner.what,
            "owner_pid": state.owner.process.pid,
            "owner_lives": state.owner_is_alive(),
            "stuck": entry.stuck,
        }
        for entry in state.entries.values()
    ]


def _line(row: dict[str, Any]) -> str:
    labels = "".join(f" {name}={value}" for name, value in row["labels"].items())
    owner = f"{row['owner']}, process {row['owner_pid']}{'' if row['owner_lives'] else ' (dead)'}"
    return f"{row['kind']:14s} {row['id']:8s} since {row['since']}  {owner}{labels}{' STUCK: ' + row['stuck'] if row['stuck'] else ''}"


def _pairs(labels: list[str] | None) -> dict[str, str]:
    from etude.sandbox.errors import UserError

    found: dict[str, str] = {}
    for label in labels or ():
        name, equals, value = label.partition("=")
        if not name or not equals:
            raise UserError(f"--label {label}: write NAME=VALUE")
        found[name] = value
    return found
