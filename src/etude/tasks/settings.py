"""Where a run's tasks come from, if not from the exercises."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, field_validator

from etude.core.plugins import require_import_paths


class TaskSettings(BaseModel):
    """A folder of tasks in place of the exercises: RL and its control draw from its training split, the bench from the others."""

    model_config = ConfigDict(extra="forbid")

    folder: str = Field(
        default="",
        description="a folder of tasks (`etude tasks make`, `import` or `export`) that rl, attempts, trials and bench draw from; empty: "
        "the exercises. Demonstrations (sessions) stay with the exercises, which the scripted expert knows; of others "
        "`etude session collect` makes them",
    )
    mix: str = Field(
        default="",
        description="weights of categories to draw the folder's tasks by, as `etude tasks mix` writes them; empty: every task alike. "
        "`rl.levels` weighs exercises alone",
    )
    plugins: list[str] = Field(
        default_factory=list,
        description="graders by import path (module:name) that task files may name (docs/extending.md); code is never imported because a "
        "task file names it",
    )

    @field_validator("plugins")
    @classmethod
    def _import_paths(cls, plugins: list[str]) -> list[str]:
        require_import_paths(plugins)
        return plugins
