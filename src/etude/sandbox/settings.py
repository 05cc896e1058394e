"""Settings of the sandbox room."""

from __future__ import annotations

import os
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class SandboxSettings(BaseModel):
    """Which back end, and how many commands at once. Limits of one sandbox are in its spec."""

    model_config = ConfigDict(extra="forbid")

    backend: Literal["auto", "local", "bubblewrap", "podman", "runc", "gvisor", "process", "fake"] = Field(
        "auto",
        description="back end; auto takes the first of local (namespaces), bubblewrap and podman that works; process is weaker and "
        "fake in memory, for tests: neither is taken unasked",
    )
    max_running: int = Field(
        default_factory=lambda: 2 * (os.cpu_count() or 2),
        ge=1,
        description="commands that run at once, in all sandboxes",
    )
