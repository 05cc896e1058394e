"""An ablation file: one recipe, one setting at several values, several seeds; and what is read off each run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator


class AblationSettings(BaseModel):
    """TOML of `etude ablate`. Every cell is a run of the recipe with one value and one seed."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(description="names the folder under runs/ablations")
    recipe: str = Field(default="laptop", description="recipe that every cell runs: a name or a path")
    key: str = Field(description="dotted key of the recipe that is varied")
    values: list[int | float | str] = Field(min_length=2, description="what the key is set to")
    seeds: list[int] = Field(
        min_length=1, description="seeds; cells of one seed share the stages that the key does not reach"
    )
    seeded: list[str] = Field(description="keys of the recipe that get the seed")
    until: str = Field(default="rl", description="last stage of a cell")
    reward_steps: int = Field(
        default=10, ge=1, description="number of RL steps at the end of a cell over which its reward is averaged"
    )
    recipe_keys: dict[str, Any] = Field(
        default_factory=dict, alias="set", description="further keys of the recipe, as tables"
    )

    @property
    def overrides(self) -> list[str]:
        """`set` as `a.b=value`, the way `--set` takes it."""
        return [f"{key}={json.dumps(value)}" for key, value in _leaves(self.recipe_keys, "")]

    @field_validator("values", "seeds")
    @classmethod
    def _once(cls, found: list[Any]) -> list[Any]:
        if len(set(found)) < len(found):
            raise ValueError(f"{found} names one twice; each value and seed is one cell")
        return found


def _leaves(table: dict[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value
