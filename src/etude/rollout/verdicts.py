"""One grading for attempts at one task that left the same files: a group of rollouts often ends alike, or changed nothing.

A verdict is a function of the task and the files (promise 9: a fresh sandbox holds nothing else), so the second grading could
only repeat the first. A grading that failed for reasons of ours leaves nothing behind: a caller that waits for it grades
again (promise 8).
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping

from etude.tasks.content import digest_of
from etude.tasks.task import Verdict

# Attempts at one task end within a few hundred others; forgetting one too early costs a grading, nothing else.
KEPT = 2048


class Verdicts:
    """Belongs to one event loop. `shared` counts the gradings spared."""

    def __init__(self, kept: int = KEPT) -> None:
        self.shared = 0
        self._kept = kept
        self._known: OrderedDict[str, asyncio.Future[Verdict | None]] = OrderedDict()

    async def of(
        self, task_id: str, files: Mapping[str, bytes], grade: Callable[[], Awaitable[Verdict]]
    ) -> tuple[Verdict, bool]:
        """The verdict, and whether it is an earlier one's. The first caller calls `grade`, others wait for it."""
        key = key_of(task_id, files)
        while (known := self._known.get(key)) is not None:
            verdict = await asyncio.shield(known)
            if verdict is not None:
                self.shared += 1
                return verdict, True
        verdict = None
        future = self._known[key] = asyncio.get_running_loop().create_future()
        try:
            verdict = await grade()
            return verdict, False
        finally:
            if verdict is None:
                self._known.pop(key, None)
            future.set_result(verdict)
            while len(self._known) > self._kept:
                self._known.popitem(last=False)


def key_of(task_id: str, files: Mapping[str, bytes]) -> str:
    """A digest of a task's id and a tree."""
    return digest_of(files, task_id.encode())
