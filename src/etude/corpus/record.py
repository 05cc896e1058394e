"""One text of the library with its whole provenance: what it is, whose it is, under which licence and how that is known."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, get_args

# What a licence asks of those who build on the code, mildest first.
Family = Literal["permissive", "weak copyleft", "strong copyleft", "other", "unknown"]
FAMILIES: tuple[Family, ...] = get_args(Family)

Kind = Literal["file", "diff", "patch", "changelog"]

# From certain to none: a copy with better evidence is the one that is kept.
EVIDENCE = ("file", "dep5", "metadata", "text", "none")


@dataclass(frozen=True)
class Licence:
    """`expression` is SPDX ("MIT", "Apache-2.0 OR MIT") or "" if unknown; `evidence` says where it was found:
    the file's own header, debian/copyright, the package's metadata, or a licence text beside it."""

    expression: str
    evidence: Literal["file", "dep5", "metadata", "text", "none"]


@dataclass(frozen=True)
class Record:
    """`text` has "\\n" line ends, placeholders for secrets and personal data, and is never empty."""

    text: str
    kind: Kind
    source: str  # the source's name in the recipe
    project: str  # `Ref.project`: one name in every source
    version: str
    released: str
    path: str  # inside the project, with "/"
    language: str  # lower-case name ("python", "c", "markdown"), "" if unknown
    licence: Licence

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the text, hexadecimal."""
        return hashlib.sha256(self.text.encode("utf-8", "surrogatepass")).hexdigest()

    @property
    def id(self) -> str:
        """Unique in a library."""
        return f"{self.source}/{self.project}@{self.version}:{self.path}#{self.kind}"
