"""What text the base and the tokenizer learn from."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from etude.core.licence.licence import FAMILIES, Family

SourceKind = Literal["folder", "git", "stdlib", "installed", "sdist", "npm", "debian"]
# The run's own exercises are one more source under this name, next to the library's.
EXERCISES = "exercises"
# A source's name is part of folder names, and a dot in it sets the form apart.
SOURCE_NAME = re.compile(r"[A-Za-z0-9_-]+")
# One's own code is one's own, whatever it says; what comes from strangers has to say that it may be used.
OWN_KINDS = ("folder", "git")


class SourceSettings(BaseModel):
    """Where projects come from: `[corpus.sources.<name>]`."""

    model_config = ConfigDict(extra="forbid")

    kind: SourceKind = Field(description="what the source is")
    path: Path | None = Field(None, description="folder, git: where it lies")
    packages: list[str] = Field(
        default_factory=list, description="sdist, npm, debian: names; installed, stdlib: these alone, empty takes all"
    )
    releases: int = Field(1, ge=1, description="git, sdist, npm: the newest n releases of each; two or more give diffs")
    before: str = Field("", description="ISO date: nothing released or committed on that day or later")
    licences: list[Family] | None = Field(
        None, description="families of licences taken; unset: all of a folder or repository, permissive of the others"
    )
    weight: float = Field(1.0, ge=0, description="share of training tokens drawn from it, against the other weights")
    max_bytes: int | None = Field(
        None, ge=1, description="keep at most so much: a sample of its projects by hash; unset: all of them"
    )

    @property
    def place(self) -> Path:
        """Where a folder or a repository lies."""
        assert self.path is not None  # _says_where
        return self.path

    @property
    def families(self) -> tuple[Family, ...]:
        """The licence families that are taken."""
        if self.licences is not None:
            return tuple(self.licences)
        return FAMILIES if self.kind in OWN_KINDS else ("permissive",)

    @model_validator(mode="after")
    def _says_where(self) -> SourceSettings:
        if self.kind in OWN_KINDS and self.path is None:
            raise ValueError(f"a source of kind {self.kind} needs a path")
        if self.kind in ("sdist", "npm", "debian") and not self.packages:
            raise ValueError(f"a source of kind {self.kind} needs packages: the names to fetch")
        return self


class LibrarySettings(BaseModel):
    """How `etude corpus build` makes a library of texts out of the sources."""

    model_config = ConfigDict(extra="forbid")

    workers: int | None = Field(None, ge=1, description="processes that read projects side by side; unset: one a core")
    heldout_share: float = Field(
        0.05, ge=0, lt=1, description="share of projects, all their versions, held out by name"
    )
    near_duplicate: float = Field(0.6, gt=0, le=1, description="likeness of shingles from which two texts are copies")
    redact: bool = Field(True, description="put placeholders for secrets and personal data")
    fingerprints: list[Path] = Field(
        default_factory=list, description="fingerprint files of suites: texts that match are refused"
    )


class CorpusSettings(BaseModel):
    """Sources, the tokenizer that is trained on them, and the documents that are made of them."""

    model_config = ConfigDict(extra="forbid")

    sources: dict[str, SourceSettings] = Field(default_factory=dict, description="where projects come from")
    library: LibrarySettings = Field(
        default_factory=lambda: LibrarySettings.model_validate({}), description="how a library is made of them"
    )
    seed: int = Field(0, description="Draws the exercises, what is cut for fill-in-the-middle, and samples.")
    vocabulary_size: int = Field(768, ge=320, le=200_000, description="Tokenizer entries, special tokens included.")
    tokenizer_bytes: int = Field(400_000, ge=0, description="Bytes of the library, drawn, that merges are learnt from.")
    exercise_documents: int = Field(8_000, ge=0, description="Documents made of the training exercises.")
    exercise_weight: float = Field(1.0, ge=0, description="Share of training tokens drawn from them, as a source's.")
    exercise_repeats: int = Field(4, ge=1, description="How often exercise text counts when merges are learnt.")
    exercise_heldout_share: float = Field(0.02, ge=0, lt=1, description="Share of exercise documents held out by hash.")
    fim_rate: float = Field(0.0, ge=0, le=1, description="Share of short files that are cut for fill-in-the-middle.")
    fim_longest_tokens: int = Field(8_192, ge=1, description="A longer file stays whole.")
    project_tokens: int = Field(262_144, ge=256, description="Longest document that a project's files are joined to.")

    lookup_tokens: int = Field(
        8_192, ge=0, description="Length of documents that ask for something far above; 0: none."
    )

    @field_validator("sources")
    @classmethod
    def _names(cls, sources: dict[str, SourceSettings]) -> dict[str, SourceSettings]:
        for name in sources:
            if not SOURCE_NAME.fullmatch(name):
                raise ValueError(f"the source name {name!r} is no folder name: use letters, digits, - and _")
            if name == EXERCISES:
                raise ValueError(f"{name!r} is the name of the run's own exercises: give the source another")
        return sources

    @property
    def weights(self) -> dict[str, float]:
        """What each source of training documents weighs in a mix."""
        return {name: table.weight for name, table in self.sources.items()} | {EXERCISES: self.exercise_weight}
