"""Slow tools for measurements of asynchrony: recorded latencies replayed as sleeps before an agent's calls, and a sandbox whose commands wait.

A hash of the rollout's name, the call's number in it and the tool decides which latency a call waits. So the same call of the same rollout
waits equally long, also when rollouts take turns or are resumed.
"""

from __future__ import annotations

import asyncio
import hashlib
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from etude.agent.harness.approval import ApprovalDecision, Approver, Effect
from etude.agent.policy.protocol import FatalStageError
from etude.core.trace.message import ToolCall
from etude.sandbox.protocol import Disposable
from etude.sandbox.spec import ExecResult, FileEntry, SandboxSpec


class SlowSandbox:
    """A sandbox whose commands, reads, writes and listings start `latency_s` later; the rest is the inner one's."""

    def __init__(self, inner: Disposable, latency_s: float) -> None:
        self.inner = inner
        self.latency_s = latency_s
        self.id: str = inner.id
        self.spec: SandboxSpec = inner.spec

    async def run(self, argv: list[str] | str, **options: Any) -> ExecResult:
        await asyncio.sleep(self.latency_s)
        return await self.inner.run(argv, **options)

    async def read(self, path: str, *, max_bytes: int = 1 << 20, offset: int = 0) -> bytes:
        await asyncio.sleep(self.latency_s)
        return await self.inner.read(path, max_bytes=max_bytes, offset=offset)

    async def write(self, path: str, data: bytes, *, mode: int | None = None) -> None:
        await asyncio.sleep(self.latency_s)
        await self.inner.write(path, data, mode=mode)

    async def list(self, path: str = ".", *, recursive: bool = True, max_entries: int = 10_000) -> list[FileEntry]:
        await asyncio.sleep(self.latency_s)
        return await self.inner.list(path, recursive=recursive, max_entries=max_entries)

    async def remove(self, path: str) -> None:
        await self.inner.remove(path)

    async def export(self, path: str = ".", *, max_bytes: int = 16 << 20) -> dict[str, bytes]:
        return await self.inner.export(path, max_bytes=max_bytes)

    async def kill(self) -> None:
        await self.inner.kill()


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
