"""Settings of generated exercises and of the scripted sessions on them."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

LevelName = Literal["one-bug", "from-tests", "two-bugs", "rename", "feature", "docstring", "write-test", "relapse"]


def _levels() -> dict[LevelName, float]:
    # The debugging levels share one skill (find, copy, change a token), so they carry most of the weight.
    return {
        "one-bug": 5.0,
        "from-tests": 3.0,
        "two-bugs": 1.0,
        "rename": 2.0,
        "feature": 1.0,
        "docstring": 2.0,
        "write-test": 0.5,
        "relapse": 1.0,
    }


class ExerciseSettings(BaseModel):
    """The generated exercises: which levels in what proportion, and what is held out."""

    model_config = ConfigDict(extra="forbid")

    seed: int = Field(
        default=0, description="Seed of every generated task; another seed gives other tasks and another split."
    )
    levels: dict[LevelName, float] = Field(
        default_factory=_levels,
        description="Weight of each level in the mix; one left out keeps its default, one at 0 is not made.",
    )
    wording: Literal["words", "sentences"] = Field(
        default="words",
        description='How a request is put: in words that the laptop model\'s tokenizer knows ("fix stack"), or in sentences for a model that was '
        "trained on language.",
    )
    holdout_share: float = Field(
        default=0.1,
        gt=0,
        lt=0.5,
        description="Share of training templates' function bodies (after renaming) kept for validation.",
    )
    template_share: float = Field(
        default=0.25,
        ge=0,
        le=1,
        description="Share of validation and held-out tasks whose template never occurs in training.",
    )
    two_function_share: float = Field(
        default=0.2, ge=0, le=1, description="Share of files that hold two functions, not one."
    )
    train_tasks: int = Field(
        default=1_000_000, ge=1, description="Task numbers offered for training (made only when asked)."
    )
    heldout_tasks: int = Field(
        default=4_096, ge=1, description="Task numbers offered for validation, and as many for the held-out split."
    )


class SessionSettings(BaseModel):
    """Sessions of the scripted expert, the demonstrations of the sft stage."""

    model_config = ConfigDict(extra="forbid")

    count: int = Field(default=12_000, ge=1, description="Sessions to collect.")
    competence: float = Field(
        default=0.5, ge=0.4, le=1, description="Probability that a session is competent; the rest shows bad judgement."
    )
    early_summaries: float = Field(
        default=0.25,
        ge=0,
        le=1,
        description="Share of sessions whose summary trigger is lowered, by a quarter to a half: the expert works too briefly to meet it.",
    )
    concurrency: int = Field(default=8, ge=1, description="Sessions in flight at once.")
    seed: int = Field(
        default=1,
        description="Seed of the experts' judgement; the tasks are the last of the training tasks whatever it is.",
    )
