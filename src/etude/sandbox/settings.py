"""Settings of the sandbox room."""

from __future__ import annotations

import os
from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from etude.core.plugins import is_import_path

SUPPORTED_BACKENDS = ("local", "bubblewrap", "podman", "docker")
EXPERIMENTAL_BACKENDS = ("gvisor", "runc", "process")
BackendTier = Literal["supported", "experimental", "for tests", "custom"]
BackendName = Literal["auto", "local", "bubblewrap", "podman", "runc", "docker", "gvisor", "process", "fake"]
BACKENDS: tuple[BackendName, ...] = get_args(BackendName)
# Former backends. A recipe or an option that names one is refused with this remedy.
REMOVED_BACKENDS = {"firecracker": "it was removed because no guest could ever be started here; use local or podman"}
# What run directories of earlier versions hold in the former table `firecracker`: it had no effect on other backends.
_REMOVED_TABLE = {
    "program": "firecracker",
    "kernel": "",
    "rootfs": "",
    "arguments": "console=ttyS0 reboot=k panic=1 pci=off quiet",
}


def tier(backend: str) -> BackendTier:
    """How well a backend is tested. `auto` takes supported ones only; custom ones are by import path."""
    if is_import_path(backend):
        return "custom"
    if backend in EXPERIMENTAL_BACKENDS:
        return "experimental"
    return "supported" if backend in SUPPORTED_BACKENDS else "for tests"


class SandboxSettings(BaseModel):
    """Which back end, and how many sandboxes and commands at once. Limits of one sandbox are in its spec."""

    model_config = ConfigDict(extra="forbid")

    backend: str = Field(
        default="auto",
        description="back end; auto takes the first of local (namespaces), bubblewrap and podman that works. Supported are local, "
        "bubblewrap, podman and docker. Experimental are gvisor, runc and process (weaker isolation). fake is in memory, for tests. "
        "module:name is one of your own (docs/extending/backends.md)",
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

    @field_validator("backend", mode="before")
    @classmethod
    def _refuse_removed_backend(cls, backend: Any) -> Any:
        if isinstance(backend, str) and backend in REMOVED_BACKENDS:
            raise ValueError(f"{backend!r}: there is no such backend: {REMOVED_BACKENDS[backend]}")
        return backend

    @field_validator("backend")
    @classmethod
    def _known_backend(cls, backend: str) -> str:
        if backend not in BACKENDS and not is_import_path(backend):
            raise ValueError(f"{backend!r} is none of {', '.join(BACKENDS)}, and no import path (module:name)")
        return backend

    @model_validator(mode="before")
    @classmethod
    def _drop_removed_table(cls, data: Any) -> Any:
        """Without a table `firecracker` that has its former defaults. Raises ValueError for one that sets something."""
        if not isinstance(data, dict) or not isinstance(table := data.get("firecracker"), dict):
            return data
        if chosen := [f"firecracker.{key} = {table[key]!r}" for key in table if table[key] != _REMOVED_TABLE.get(key)]:
            raise ValueError(f"{', '.join(chosen)}: there is no such backend: {REMOVED_BACKENDS['firecracker']}")
        return {key: value for key, value in data.items() if key != "firecracker"}
