"""`etude tasks prepare DIR`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from etude.cli.answer import Answer
from etude.cli.option import Json
from etude.core.events.stopping import run_async


def prepare(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder of tasks that was made somewhere.")],
    json: Json = False,
) -> Answer:
    """Make the environments that a folder's tasks start from, where this machine lacks them. Fails if any can't be made."""
    found = run_async(_prepared(folder))
    there, made = ([name for name, said in found.items() if said == word] for word in ("ready", "made"))
    reasons = {name: said for name, said in found.items() if said not in ("ready", "made")}
    lines = [f"{len(there)} environments were here, {len(made)} were made, {len(reasons)} can't be"]
    lines += [f"  {reason}" for reason in reasons.values()]
    document = {"folder": str(folder), "ready": there, "made": made, "lacking": reasons}
    return Answer(document, "\n".join(lines), int(bool(reasons)))


async def _prepared(folder: Path) -> dict[str, str]:
    from etude.sandbox.pool import open_pool
    from etude.sandbox.settings import SandboxSettings
    from etude.tasks.generate.install import preparing
    from etude.tasks.running.pin import default_cache
    from etude.tasks.store.folder import TaskFolder

    trees = TaskFolder(folder).trees
    found: dict[str, str] = {}
    pool = await open_pool(SandboxSettings())
    try:
        for name in trees.names():
            try:
                found[name] = await preparing.prepare(trees, name, pool, default_cache())
            except preparing.Unprepared as error:
                found[name] = str(error)
            print(f"{name}: {found[name]}", file=sys.stderr, flush=True)
    finally:
        await pool.close()
    return found
