"""An attempt whose agent is done and which has no verdict yet: all that its grading needs, and no sandbox.

So it can be graded at once or later, by this process or by the next one (`ended_file.py`): a verdict is a function of the task and of these
fields (promise 9). None of them is a score.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from etude.agent.harness.agent import AgentOutcome


@dataclass(frozen=True)
class UngradedAttempt:
    """`files`: the whole tree that the agent left; `objection`: why it could not be taken, if so. `number`: the try, from 1. `seconds` by
    phase: create, agent (of it policy, tools), export."""

    name: str
    outcome: AgentOutcome
    files: dict[str, bytes]
    objection: str
    number: int
    host: str
    began_unix_s: float
    seconds: dict[str, float]


Keep = Callable[[UngradedAttempt], None]  # called before the grading begins


def unkept(ended: UngradedAttempt) -> None:
    """After a kill it is not continued."""
