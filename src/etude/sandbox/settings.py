"""Settings of the sandbox room."""

from __future__ import annotations

import os
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class FirecrackerSettings(BaseModel):
    """What microVMs are made of; see docs/sandbox.md."""

    model_config = ConfigDict(extra="forbid")

    program: str = Field(default="firecracker", description="the program firecracker, by name or path")
    kernel: str = Field(default="", description="file of an uncompressed kernel with vsock, as firecracker takes it")
    rootfs: str = Field(
        default="", description="file of a read-only root file system, with the init of docs/sandbox.md"
    )
    arguments: str = Field(
        default="console=ttyS0 reboot=k panic=1 pci=off quiet", description="the kernel's command line, before ours"
    )


class SandboxSettings(BaseModel):
    """Which back end, and how many sandboxes and commands at once. Limits of one sandbox are in its spec."""

    model_config = ConfigDict(extra="forbid")

    backend: Literal[
        "auto", "local", "bubblewrap", "podman", "runc", "docker", "gvisor", "firecracker", "process", "fake"
    ] = Field(
        default="auto",
        description="back end; auto takes the first of local (namespaces), bubblewrap and podman that works; process is weaker and "
        "fake in memory, for tests: neither is taken unasked",
    )
    firecracker: FirecrackerSettings = Field(
        default_factory=FirecrackerSettings, description="kernel and root of microVMs; for back end firecracker alone"
    )
    max_live: int = Field(
        default=512,
        ge=1,
        description="sandboxes that live at once in one pool; who asks for more waits in line",
    )
    creates_per_s: float | None = Field(
        default=None, gt=0, description="sandboxes made a second at most, a second's worth at once; none: no bound"
    )
    max_waiting: int = Field(
        default=4096, ge=1, description="creates that wait in line at most; more are refused with CapacityExhausted"
    )
    patience_s: float = Field(
        default=60.0, gt=0, description="how long a create waits in line before it is refused with CapacityExhausted"
    )
    ledger: str = Field(
        default="",
        description="folder in which pools write down what they make, so that what a dead one left is removed; "
        "empty: below the user's state folder",
    )
    layers: str = Field(
        default="",
        description="folder of snapshots and images (docs/layers.md), shared by all that use it; empty: below the user's data folder",
    )
    max_running: int = Field(
        default_factory=lambda: 2 * (os.cpu_count() or 2),
        ge=1,
        description="commands that run at once, in all sandboxes",
    )
    egress_log: str = Field(
        default="", description="file for the decisions at the doors of sandboxes, JSON lines; empty: in memory alone"
    )
    egress_networks: list[str] = Field(
        default_factory=list,
        description="private networks in which hosts on an allow-list may lie, e.g. 10.1.0.0/16; else only public addresses are dialled",
    )
    egress_cache: str = Field(
        default="", description="folder for packages that sandboxes fetched; empty: etude/packages in the user's cache"
    )
