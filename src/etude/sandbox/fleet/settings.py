"""Settings of the fleet."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class FleetSettings(BaseModel):
    """Many machines of sandboxes as one pool (docs/fleet.md). With the default, `hosts = ""`, sandboxes are this machine's own."""

    model_config = ConfigDict(extra="forbid")

    hosts: Literal["", "ray"] = Field(
        default="", description='nothing: this machine alone; "ray": every machine of a Ray cluster'
    )
    address: str = Field(default="auto", description="of the Ray cluster")
    max_live: int = Field(default=1000, ge=1, description="sandboxes of one host that live at once")
    max_running: int = Field(
        default=0, ge=0, description="commands of one host that run at once; 0: two for each of its cores"
    )
    memory_share: float = Field(
        default=4.0,
        gt=0,
        description="memory promised, in multiples of the host's; most sandboxes use little",
    )
    cpu_share: float = Field(
        default=8.0,
        gt=0,
        description="cores promised, in multiples of the host's; most sandboxes wait",
    )
    creates_per_s: float = Field(default=50.0, gt=0, description="sandboxes made a second on one host")
    attempts: int = Field(default=4, ge=1, description="for one sandbox, while infra faults fail them")
    patience_s: float = Field(
        default=300.0, ge=0, description="how long a create waits for room, all attempts together"
    )
    warm: int = Field(default=0, ge=0, description="sandboxes of one hot kind kept ready at most; 0: none")
