"""`etude sandbox`: what isolation works here, and one command run inside it."""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from etude.cli.answer import Answer
from etude.cli.option import Json

app = typer.Typer(no_args_is_help=True, help="Probe the sandbox of this machine, or run a command in one.")

MAX_FILE_BYTES = 1 << 20  # what a person wants to try fits; a data set by mistake does not


@app.command()
def probe(json: Json = False) -> Answer:
    """Make a sandbox, run a command in it, and say what it is."""
    from etude.recipe.recipe import Recipe
    from etude.sandbox.pool import open_pool

    async def found() -> dict:
        pool = await open_pool(Recipe().sandbox)
        try:
            return dataclasses.asdict(pool.probe())
        finally:
            await pool.close()

    document = asyncio.run(found())
    return Answer(document, "\n".join(f"{key}: {value}" for key, value in document.items()))


@app.command(context_settings={"ignore_unknown_options": True})
def run(
    command: Annotated[list[str], typer.Argument(metavar="COMMAND...", help="The command and its arguments.")],
    folder: Annotated[
        Path | None, typer.Option("--files", metavar="DIR", help="Copy this folder's files into the sandbox first.")
    ] = None,
    timeout_s: Annotated[
        float, typer.Option("--timeout-s", min=0.1, help="Kill everything after so many seconds.")
    ] = 10.0,
    memory_mb: Annotated[int, typer.Option("--memory-mb", min=32, help="Memory of the sandbox.")] = 512,
    json: Json = False,
) -> Answer:
    """Run one command in a fresh sandbox without network; its exit status is ours. Nothing comes back but its output."""
    from etude.recipe.recipe import Recipe
    from etude.sandbox.pool import open_pool
    from etude.sandbox.spec import ExecResult, SandboxSpec

    async def result() -> ExecResult:
        pool = await open_pool(Recipe().sandbox)
        try:
            sandbox = await pool.create(SandboxSpec(files=_files(folder), memory_mb=memory_mb))
            return await sandbox.run(command, timeout_s=timeout_s)
        finally:
            await pool.close()

    done = asyncio.run(result())
    out, err = done.out.decode(errors="replace"), done.err.decode(errors="replace")
    document = dataclasses.asdict(done) | {"out": out, "err": err}
    marks = [name for name in ("timed_out", "oom", "truncated") if document[name]]
    text = out + err + (f"\n[{', '.join(marks)}]" if marks else "")
    return Answer(document, text.removesuffix("\n"), done.rc)


def _files(folder: Path | None) -> dict[str, bytes]:
    if folder is None:
        return {}
    if not folder.is_dir():
        raise NotADirectoryError(f"--files {folder}: there is no such folder")
    paths = [p for p in sorted(folder.rglob("*")) if p.is_file()]
    large = [p for p in paths if p.stat().st_size > MAX_FILE_BYTES]
    if large:
        raise ValueError(f"--files: {large[0]} is larger than {MAX_FILE_BYTES} bytes; leave it out")
    return {str(p.relative_to(folder)): p.read_bytes() for p in paths}
