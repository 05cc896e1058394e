"""`etude sandbox probe`: what works here, found by doing it."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated, Any

import typer

from etude.cli.answer import Answer
from etude.cli.option import Json
from etude.cli.sandbox import flags
from etude.core.events.stopping import run_async

if TYPE_CHECKING:
    from etude.sandbox.settings import SandboxSettings


def probe(
    backend: flags.Backend = "auto",
    every: Annotated[
        bool, typer.Option("--all", help="Try every backend and print why the others don't work.")
    ] = False,
    json: Json = False,
) -> Answer:
    """Make a sandbox, run a command in it, and say what it is."""
    if every:
        return _all()
    document = run_async(found(flags.settings(backend)))
    return Answer(document, "\n".join(f"{key}: {value}" for key, value in document.items()))


async def found(settings: SandboxSettings) -> dict[str, Any]:
    """The capabilities of one back end. Raises Unsupported."""
    from etude.sandbox.pool import open_pool

    pool = await open_pool(settings)
    try:
        return dataclasses.asdict(pool.probe())
    finally:
        await pool.close()


def _all() -> Answer:
    from etude.sandbox.errors import SandboxError
    from etude.sandbox.settings import BACKENDS

    backends: dict[str, dict[str, Any]] = {}
    for name in BACKENDS:
        if name == "auto":
            continue
        try:
            backends[name] = run_async(found(flags.settings(name)))
        except SandboxError as error:
            backends[name] = {"backend": name, "available": False, "reason": str(error)}
    works = [name for name, one in backends.items() if one["available"]]
    lines = [_line(name, one) for name, one in backends.items()]
    return Answer({"available": bool(works), "backends": backends}, "\n".join(lines), 0 if works else 1)


def _line(name: str, one: dict[str, Any]) -> str:
    from etude.sandbox.settings import tier

    level = f"{name:12s} {tier(name):12s}"
    if not one["available"]:
        return f"{level} no   {one['reason']}"
    can = [key for key, value in one.items() if value is True and key not in ("available", "warm_python")]
    return f"{level} yes  {one['isolation']}; runner {one['runner']}; {one['limits']}; {', '.join(can) or 'files and commands'}"
