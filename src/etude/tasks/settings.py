"""Where a run's tasks come from, if not from the exercises."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class TaskSettings(BaseModel):
    """A folder of tasks in place of the exercises: RL and its control draw from its training split, the bench from the others."""

    model_config = ConfigDict(extra="forbid")

    folder: str = Field(
        default="",
        description="a folder of tasks (`etude tasks make`, `import` or `export`) that rl, attempts, trials and bench draw from; empty: "
        "the exercises. Demonstrations (sessions) stay with the exercises, which the scripted expert knows; of others "
        "`etude sessions collect` makes them",
    )
    mix: str = Field(
        default="",
        description="weights of categories to draw the folder's tasks by, as `etude tasks mix` writes them; empty: every task alike. "
        "`rl.levels` weighs exercises alone",
    )
