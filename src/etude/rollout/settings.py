"""Settings of one attempt at a task."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, model_validator


class AttemptSettings(BaseModel):
    """What an attempt may take, and how infra faults are retried."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    attempts: int = Field(default=4, ge=1, description="tries of one rollout when infrastructure fails")
    first_delay_s: float = Field(default=0.1, ge=0, description="wait before the second try, seconds; then times four")
    max_delay_s: float = Field(default=5.0, ge=0, description="longest wait between two tries, seconds")
    limit_s: float = Field(
        default=300.0,
        gt=0,
        description="a try whose session records nothing for this many seconds hangs, which is an infrastructure error; the time in "
        "which an engine of ours computes its turn does not count; another harness, whose turns are not recorded here, has this long in all",
    )
    memory_mb: int = Field(default=512, ge=32, description="memory of a sandbox, MiB")
    max_export_bytes: int = Field(default=4 << 20, ge=1, description="most bytes of files an agent may leave behind")
    tool_latency_s: float = Field(
        default=0.0, ge=0, description="sleep before every sandbox command, to replay slow tools"
    )
    tool_latencies: Path | None = Field(
        default=None,
        description="file of recorded latencies by tool (benchmarks/latencies.py): each call of a tool waits one of them first, drawn by "
        "rollout and call; unset: none",
    )

    @model_validator(mode="after")
    def _one_latency(self) -> AttemptSettings:
        if self.tool_latency_s and self.tool_latencies:
            raise ValueError(
                f"tool_latency_s = {self.tool_latency_s} and tool_latencies = {self.tool_latencies}: calls would wait twice; keep one"
            )
        return self
