"""Many questions at once, of which a failing one ends the others: an endpoint that is gone must not be waited for by each in turn."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

T = TypeVar("T")


async def gather_all(jobs: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Their results in order. Raises what the first failing one raised, when all others have ended."""
    tasks: list[asyncio.Task[T]] = []
    try:
        async with asyncio.TaskGroup() as group:
            tasks += [group.create_task(job) for job in jobs]
    except BaseExceptionGroup as failed:
        raise _first(failed) from None
    return [task.result() for task in tasks]


def _first(failed: BaseExceptionGroup[BaseException]) -> BaseException:
    one = failed.exceptions[0]
    return _first(one) if isinstance(one, BaseExceptionGroup) else one
