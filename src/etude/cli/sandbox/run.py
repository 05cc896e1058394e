"""`etude sandbox run`: one command in a fresh sandbox."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated

import typer

from etude.cli.answer import Answer
from etude.cli.option import Json
from etude.cli.sandbox import flags
from etude.core.events.stopping import run_async

if TYPE_CHECKING:
    from etude.sandbox.spec import ExecResult


def run(
    command: Annotated[list[str], typer.Argument(metavar="COMMAND...", help="The command and its arguments.")],
    backend: flags.Backend = "auto",
    folder: flags.Folder = None,
    image: flags.Image = "",
    timeout_s: Annotated[
        float, typer.Option("--timeout-s", min=0.1, help="Seconds until every process is killed.")
    ] = 10.0,
    memory_mb: flags.Memory = 512,
    pids: flags.Pids = 64,
    disk_mb: flags.Disk = 64,
    cpus: flags.Cpus = None,
    allow: flags.Allow = None,
    root: flags.Root = False,
    json: Json = False,
) -> Answer:
    """Run one command in a fresh sandbox, without network unless --allow names a host. Only its output and its exit status come back."""
    from etude.sandbox.pool import open_pool

    wanted = flags.spec(folder, image, memory_mb, pids, disk_mb, cpus, allow, root)

    async def result() -> ExecResult:
        pool = await open_pool(flags.settings(backend))
        try:
            sandbox = await pool.create(wanted)
            return await sandbox.run(command, timeout_s=timeout_s)
        finally:
            await pool.close()

    done = run_async(result())
    out, err = done.out.decode(errors="replace"), done.err.decode(errors="replace")
    document = dataclasses.asdict(done) | {"out": out, "err": err}
    marks = [name for name in ("timed_out", "oom", "truncated") if document[name]]
    text = out + err + (f"\n[{', '.join(marks)}]" if marks else "")
    return Answer(document, text.removesuffix("\n"), done.rc)
