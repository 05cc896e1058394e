"""The judge of the `judge` component, as the run sees it. The bench's judge implements it; the pipeline passes it in."""

from __future__ import annotations

from typing import Protocol

from etude.rollout.attempt import Attempt
from etude.tasks.task import Task


class AttemptJudge(Protocol):
    """`score` may run many at once."""

    async def score(self, attempt: Attempt, task: Task) -> float | None:
        """A score in [0, 1]; None if the judge did not decide. Raises InfraFault where its endpoint stays away."""
        ...

    async def close(self) -> None:
        """Close connections."""
        ...
