"""Work that rests on something which may go for good: it ends with that, instead of waiting for ever for answers that can't come."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")
LOOK_S = 1.0


class RayLost(Exception):
    """A process of Ray's own has ended, and no actor can be started any more: the run stops and says so; run again to go on."""


async def stop_if_ray_is_lost(
    work: Coroutine[Any, Any, Result], lost: Callable[[], str], look_s: float = LOOK_S
) -> Result:
    """The result of `work`. `lost` names what of Ray is gone, or nothing: then the work is cancelled, and RayLost raised, whatever the work
    made of it."""
    task = asyncio.ensure_future(work)
    try:
        while not task.done() and not lost():
            await asyncio.wait([task], timeout=look_s)
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait([task])
    error = None if task.cancelled() else task.exception()
    if (task.cancelled() or error is not None) and (name := lost()):
        raise RayLost(
            f"Ray's own process {name} has ended, and no other can be started without it. Nothing that was trained is lost: run again, it goes on"
        ) from error
    return task.result()
