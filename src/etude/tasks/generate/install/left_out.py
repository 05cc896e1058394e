"""Requirements of a project's tests that could not be had: a recipe's steps write their names, and the account of the install says them."""

from __future__ import annotations

from etude.sandbox.errors import InfraError, UserError
from etude.sandbox.protocol import Sandbox, SandboxPool
from etude.sandbox.spec import SandboxSpec
from etude.tasks.environment.environment import DEPS

LEFT_OUT = f"{DEPS}/left-out"  # one name a line
MOST, MOST_BYTES = 20, 64 << 10
LONGEST = 200  # characters of a name


async def left_out(snapshot: str, pool: SandboxPool) -> tuple[str, ...]:
    """A sentence for people, where some are. Raises InfraError, and UserError for a snapshot that is not there."""
    box = await pool.create(SandboxSpec(snapshot=snapshot))
    try:
        names, whole = await _names(box)
    except UserError:
        return ()  # the steps left nothing out
    finally:
        await box.kill()
    if not names:
        return ()
    more = f" and {'' if whole else 'at least '}{len(names) - MOST} more" if len(names) > MOST else ""
    return (f"left out, since they can't be had: {', '.join(names[:MOST])}{more}",)


async def _names(box: Sandbox) -> tuple[list[str], bool]:
    """The names in the first MOST_BYTES, and whether these are all. Raises UserError where there is no such file."""
    await box.stat(LEFT_OUT)
    done = await box.run(["head", "-c", str(MOST_BYTES), LEFT_OUT], max_output_bytes=2 * MOST_BYTES)
    if done.rc != 0:
        raise InfraError(f"{LEFT_OUT} can't be read: {done.err.decode('utf-8', 'replace').strip()[:200]}")
    names = [name[:LONGEST] for line in done.out.decode("utf-8", "replace").splitlines() if (name := line.strip())]
    return names, len(done.out) < MOST_BYTES
