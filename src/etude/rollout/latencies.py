"""Latencies of tools as recorded sessions had them, replayed as sleeps before an agent's calls: for measurements of asynchrony.

Which one a call waits is drawn by a hash of the rollout's name, the call's number in it and the tool: taking turns or not, resumed or
not, the same rollout's same call waits equally long.
"""

from __future__ import annotations

import asyncio
import hashlib
from functools import cache
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from etude.agent.harness.approval import ApprovalDecision, Approver, Effect
from etude.agent.policy.protocol import FatalStageError
from etude.core.trace.message import ToolCall

Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class LatenciesMissing(FatalStageError, ValueError):
    """`rl.attempt.tool_latencies` can't be read, or has none for a tool that agents may call."""


class Latencies(BaseModel):
    """`seconds`: of each tool the wall seconds of its calls, in any order; `source`: whose they are, and on what machine."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    source: dict[str, object]
    seconds: dict[str, Annotated[list[Seconds], Field(min_length=1)]]

    def check(self, tools: set[str]) -> None:
        """Raises LatenciesMissing where a tool that may be called has no latencies."""
        if missing := sorted(tools - set(self.seconds)):
            raise LatenciesMissing(
                f"rl.attempt.tool_latencies has none for {', '.join(missing)} (there are {', '.join(sorted(self.seconds))}): "
                "record sessions that call them (benchmarks/latencies.py), or use no file"
            )

    def of(self, rollout: str, number: int, tool: str) -> float:
        """Seconds that call `number` of a rollout waits. The same for the same three, everywhere."""
        values = self.seconds[tool]
        digest = hashlib.sha256(f"{rollout}\n{number}\n{tool}".encode()).digest()
        return values[int.from_bytes(digest[:8], "big") % len(values)]


@cache
def read_latencies(path: Path) -> Latencies:
    """Raises LatenciesMissing with the file's name where it can't be read or says something else."""
    try:
        return Latencies.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        raise LatenciesMissing(
            f"rl.attempt.tool_latencies = {path}: {error}; benchmarks/latencies.py writes such a file"
        ) from error


class SlowCalls(Approver):
    """Approves every call once its latency is over. Belongs to one session."""

    def __init__(self, latencies: Latencies, rollout: str) -> None:
        super().__init__()
        self._latencies = latencies
        self._rollout = rollout
        self._number = 0

    async def rule(self, call: ToolCall, effect: Effect) -> ApprovalDecision:
        number, self._number = self._number, self._number + 1
        await asyncio.sleep(self._latencies.of(self._rollout, number, call.name))
        return await super().rule(call, effect)
