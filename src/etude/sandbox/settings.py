"""Settings of the sandbox room."""

from __future__ import annotations

import os
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class SandboxSettings(BaseModel):
    """Which back end, how many commands at once, and the limits a spec starts from."""

    model_config = ConfigDict(extra="forbid")

    backend: Literal["auto", "local"] = Field("auto", description="back end; auto takes the safest one that works here")
    max_running: int = Field(
        default_factory=lambda: 2 * (os.cpu_count() or 2),
        ge=1,
        description="commands that run at once, in all sandboxes",
    )
    memory_mb: int = Field(512, ge=32, description="memory of one sandbox")
    pids: int = Field(64, ge=4, description="processes and threads of one sandbox")
    disk_mb: int = Field(64, ge=1, description="size of a sandbox's work folder, and of its /tmp")
