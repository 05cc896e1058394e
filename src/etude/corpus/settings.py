"""What text the base and the tokenizer learn from."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from etude.corpus.record import FAMILIES, Family

SourceKind = Literal["folder", "git", "installed", "sdist", "npm", "debian"]
# One's own code is one's own, whatever it says; what comes from strangers has to say that it may be used.
OWN_KINDS = ("folder", "git")


class SourceSettings(BaseModel):
    """Where projects come from: `[corpus.sources.<name>]`."""

    model_config = ConfigDict(extra="forbid")

    kind: SourceKind = Field(description="what the source is")
    path: Path | None = Field(None, description="folder, git: where it lies")
    packages: list[str] = Field(
        default_factory=list, description="sdist, npm, debian: names; installed: these alone, empty takes all"
    )
    releases: int = Field(1, ge=1, description="git, sdist, npm: the newest n releases of each; two or more give diffs")
    before: str = Field("", description="ISO date: nothing released or committed on that day or later")
    licences: list[Family] | None = Field(
        None, description="families of licences taken; unset: all of a folder or repository, permissive of the others"
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

    workers: int = Field(1, ge=1, description="processes that read projects side by side")
    heldout_share: float = Field(
        0.05, ge=0, lt=1, description="share of projects, all their versions, held out by name"
    )
    near_duplicate: float = Field(0.6, gt=0, le=1, description="likeness of shingles from which two texts are copies")
    redact: bool = Field(True, description="put placeholders for secrets and personal data")
    fingerprints: list[Path] = Field(
        default_factory=list, description="fingerprint files of suites: texts that match are refused"
    )


class CorpusSettings(BaseModel):
    """Sources, cleaning limits, hold-out and the size of the vocabulary."""

    model_config = ConfigDict(extra="forbid")

    sources: dict[str, SourceSettings] = Field(default_factory=dict, description="what `etude corpus build` reads")
    library: LibrarySettings = Field(
        default_factory=lambda: LibrarySettings.model_validate({}), description="how it keeps it"
    )
    seed: int = Field(0, description="Order of the documents.")
    stdlib: bool = Field(True, description="Read the Python standard library of this machine.")
    folders: list[Path] = Field(default_factory=list, description="Further folders of text or code to read.")
    min_file_bytes: int = Field(64, ge=1, description="Smaller files are refused (reason: too small).")
    max_file_bytes: int = Field(64_000, ge=1, description="Larger files are refused (reason: too large).")
    max_code_bytes: int = Field(1_500_000, ge=0, description="Stop reading files after this many bytes are accepted.")
    max_line_chars: int = Field(400, ge=40, description="A longer line marks generated text (reason: long lines).")
    exercise_documents: int = Field(8_000, ge=0, description="Documents of the training exercises mixed into the text.")
    heldout_share: float = Field(0.02, ge=0, lt=1, description="Share of documents held out by hash for evaluation.")
    vocabulary_size: int = Field(768, ge=320, le=1024, description="Tokenizer entries, special tokens included.")
    exercise_weight: int = Field(4, ge=1, description="How often exercise text counts when merges are learnt.")
