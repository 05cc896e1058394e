"""`etude tasks export ID... --out DIR`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from etude.cli.answer import Answer
from etude.cli.option import Json, Overrides
from etude.cli.prepare import DEFAULT_RECIPE
from etude.cli.tasks.source import From, RecipeName, task_of
from etude.core.events.stopping import run_async

if TYPE_CHECKING:
    from etude.tasks.export.proving import Proof
    from etude.tasks.export.writing import Exported


def export(
    task_ids: Annotated[list[str], typer.Argument(metavar="ID...", help="Tasks to export.")],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Output folder of the Harbor directories.")],
    folder: From = None,
    prove: Annotated[
        bool, typer.Option("--prove", help="Grade each by its own solve.sh and test.sh here; fails if one is off.")
    ] = False,
    recipe: RecipeName = DEFAULT_RECIPE,
    overrides: Overrides = None,
    json: Json = False,
) -> Answer:
    """Write tasks as Harbor directories: those of installed projects with their installation and a grader, for any harness."""
    tasks = [task_of(task_id, folder, recipe, overrides) for task_id in task_ids]
    rows = run_async(_exported(tasks, out, prove))
    document = {"exported": [_row_fields(*row) for row in rows]}
    return Answer(document, "\n".join(map(_line, rows)), int(any(proof and not proof.good for _, proof in rows)))


def _row_fields(row: Exported, proof: Proof | None) -> dict[str, Any]:
    document = {"id": row.id, "folder": str(row.folder), "not_elsewhere": row.not_elsewhere}
    return document | ({"reference": proof.reference, "nop": proof.nop, "said": proof.output} if proof else {})


def _line(row: tuple[Exported, Proof | None]) -> str:
    exported, proof = row
    by_itself = f"; by its own test.sh: reference {proof.reference:g}, nop {proof.nop:g}" if proof else ""
    why = f"; graded by etude alone: {exported.not_elsewhere}" if exported.not_elsewhere else ""
    return f"{exported.folder}{why}{by_itself}"


async def _exported(tasks: list[Any], out: Path, prove: bool) -> list[tuple[Exported, Proof | None]]:
    from etude.pipeline.run.task_exporting import Exporter
    from etude.sandbox.pool import open_pool
    from etude.sandbox.settings import SandboxSettings
    from etude.tasks.running.pin import default_cache

    pool = await open_pool(SandboxSettings())
    try:
        exporter = Exporter(pool, default_cache())
        return [await exporter.export(task, out / task.id.replace("/", "-"), prove=prove) for task in tasks]
    finally:
        await pool.close()
