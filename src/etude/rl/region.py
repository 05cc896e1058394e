"""Settings of a region: engines far from the trainer, which see no weights but those of a store of their own. Torch-free."""

from __future__ import annotations

import re
from collections.abc import Mapping

from pydantic import BaseModel, ConfigDict, Field, field_validator

NAME = re.compile(r"[a-z][a-z0-9_-]*")


class RegionSettings(BaseModel):
    """`[rl.regions.NAME]`. Its store is kept up by `etude weights relay FROM TO --follow`, which runs there (docs/weights.md)."""

    model_config = ConfigDict(extra="forbid")

    store: str = Field(
        description="the region's own weight store: a folder or s3://bucket/prefix, with ?endpoint=https://host:port where its server is another one"
    )
    engines: int = Field(
        default=1, ge=1, description="replicas of the engine there, in addition to those of rl.engines"
    )
    engine: dict[str, float] = Field(
        default_factory=dict,
        description="Ray resources that each takes, e.g. {far = 1}, which say where it runs; empty: on this machine",
    )

    @field_validator("store")
    @classmethod
    def _a_place(cls, store: str) -> str:
        if not store:
            raise ValueError("a region has a store of its own: name a folder or s3://bucket/prefix")
        return require_place(store)


def require_place(store: str) -> str:
    """Raises ValueError for what is neither a folder nor a bucket."""
    if "://" in store and not store.startswith("s3://"):
        raise ValueError(f"{store}: weights go to a folder or to s3://bucket/prefix")
    return store


def require_apart(regions: Mapping[str, RegionSettings], run_store: str) -> None:
    """Raises ValueError where two would write to one place, or a name can't stand in a list of figures."""
    seen = {run_store.rstrip("/"): "rl.weight_store"} if run_store else {}
    for name, region in regions.items():
        if not NAME.fullmatch(name):
            raise ValueError(
                f"rl.regions.{name}: a region's name is of small letters, digits, - and _, and begins with a letter"
            )
        place = region.store.rstrip("/")
        if place in seen:
            raise ValueError(
                f"rl.regions.{name}.store = {region.store!r} is that of {seen[place]} too: each region reads a store of its own, which its relay "
                "writes; engines that are to read the run's own are counted by rl.engines"
            )
        seen[place] = f"rl.regions.{name}"


def require_lag(lag: int, staleness: int) -> None:
    """Raises ValueError where groups would be admitted at weights too old to be trained on."""
    if lag > staleness:
        raise ValueError(
            f"rl.region_lag = {lag} with a staleness bound of {staleness}: a group admitted that many versions back could never be trained in "
            f"time; lower rl.region_lag to {staleness} or less, or raise rl.max_staleness (in sync mode the bound is 0)"
        )


def require_placed(regions: Mapping[str, RegionSettings], address: str, home: Mapping[str, float]) -> None:
    """Raises ValueError where resources say where a region's engines run, and the cluster can't go by them."""
    for name, region in regions.items():
        if region.engine and not address:
            raise ValueError(
                f"rl.regions.{name}.engine = {region.engine} without cluster.address: a run on its own machine counts no resources; name the "
                "cluster, or leave them out to have the region's engines on this machine"
            )
        if region.engine and not home:
            raise ValueError(
                f"rl.regions.{name}.engine is given and cluster.engine is not: engines at home would be spread over the region's machines too; "
                "give home's machines a resource of their own and name it in cluster.engine"
            )
