"""Settings of the rewards in addition to outcome, KL and length. Torch-free: the recipe imports them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from etude.core.plugins import is_import_path
from etude.core.spelling import similar

Manner = Literal[
    "unfinished_todos", "untested_edit", "thought_comments", "shell_only", "repeated_reads", "broken_calls", "added_lint",
    "quality", "judge", "wall_clock",
]  # fmt: skip
Weighted = Literal[Manner, "kl", "length"]


class RewardChange(BaseModel):
    """Weights that hold from a step on; those not named stay as they were."""

    model_config = ConfigDict(extra="forbid")

    from_step: int = Field(default=0, ge=0, description="first step, counted from 0, that is mixed so")
    weights: dict[str, float] = Field(default_factory=dict, description="new weights by component; 0 takes one out")

    @field_validator("weights")
    @classmethod
    def _known(cls, weights: dict[str, float]) -> dict[str, float]:
        require_components(weights, get_args(Weighted))
        return weights


class RewardSettings(BaseModel):
    """Weights of the components, when they change, and what some of them need."""

    model_config = ConfigDict(extra="forbid")

    weights: dict[str, float] = Field(
        default_factory=lambda: {"unfinished_todos": 0.02, "untested_edit": 0.02},
        description="reward per unit of each component (docs/rewards.md), or of one's own by module:name (docs/extending.md); one that is not "
        "named is only logged",
    )
    schedule: dict[str, RewardChange] = Field(
        default_factory=dict, description="changes during the run, each under a name that says what it is for"
    )
    cap: float = Field(
        default=0.3,
        gt=0,
        lt=1,
        description="most that all behaviour together takes from a rollout, or adds to a solved one; solved or not is 1",
    )
    wall_clock_s: float = Field(
        default=300.0, gt=0, description="agent's seconds at which wall_clock is half of its most"
    )
    judge: str = Field(default="", description="the judge component's model, as [NAME=]URL#MODEL; empty: no judge")
    judge_key_env: str = Field(default="OPENAI_API_KEY", description="environment variable that holds the judge's key")
    rubric: str = Field(default="", description="the judge's rubric, a TOML file; empty: the bench's rubric of quality")

    @field_validator("weights")
    @classmethod
    def _known(cls, weights: dict[str, float]) -> dict[str, float]:
        require_components(weights, get_args(Manner))
        return weights

    @model_validator(mode="after")
    def _sound(self) -> RewardSettings:
        steps = [change.from_step for change in self.changes]
        if twice := [step for step in set(steps) if steps.count(step) > 1]:
            raise ValueError(f"two entries of the schedule have from_step {min(twice)}: write one table for both")
        tables = [
            ("weights", self.weights),
            *((f"schedule.{name}", one.weights) for name, one in self.schedule.items()),
        ]
        for table, weights in tables:
            for name, weight in weights.items():
                if not 0 <= weight < math.inf:
                    raise ValueError(f"{table}: {name} is {weight}; a weight is a number of at least 0, 0 takes it out")
        if any(weights.get("judge") for _, weights in tables) and not self.judge:
            raise ValueError("the component judge has a weight, but rewards.judge is empty: give [NAME=]URL#MODEL")
        return self

    @property
    def changes(self) -> list[RewardChange]:
        """The schedule in the order of steps."""
        return sorted(self.schedule.values(), key=lambda change: change.from_step)

    @property
    def custom(self) -> list[str]:
        """Import paths of components that are not built in, sorted."""
        named = {*self.weights, *(name for one in self.schedule.values() for name in one.weights)}
        return sorted(filter(is_import_path, named))


def require_components(names: Iterable[str], known: Iterable[str]) -> None:
    """Raises ValueError for a name that is neither `known` nor an import path."""
    known = [*known]
    for name in names:
        if name not in known and not is_import_path(name):
            near = similar(name, known)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}, and your own as module:name"
            raise ValueError(f"there is no reward component {name!r}; {hint}")
