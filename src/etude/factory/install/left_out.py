"""Requirements of a project's tests that could not be had: a recipe's steps write their names, and the account of the install says them."""

from __future__ import annotations

from etude.sandbox.errors import UserError
from etude.sandbox.protocol import SandboxPool
from etude.sandbox.spec import SandboxSpec
from etude.tasks.environment.environment import DEPS

LEFT_OUT = f"{DEPS}/left-out"  # one name a line
MOST, MOST_BYTES = 20, 64 << 10


async def left_out(snapshot: str, pool: SandboxPool) -> tuple[str, ...]:
    """A sentence for people, where some are. Raises InfraError, and UserError for a snapshot that is not there."""
    box = await pool.create(SandboxSpec(snapshot=snapshot))
    try:
        names = (await box.read(LEFT_OUT, max_bytes=MOST_BYTES)).decode("utf-8", "replace").splitlines()
    except UserError:
        return ()  # the steps left nothing out
    finally:
        await box.kill()
    more = f" and {len(names) - MOST} more" if len(names) > MOST else ""
    return (f"left out, since they can't be had: {', '.join(names[:MOST])}{more}",)
