"""A licence as SPDX names it, the family that it belongs to, and how it is known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

# What a licence asks of those who build on the code, mildest first.
Family = Literal["permissive", "weak copyleft", "strong copyleft", "other", "unknown"]
FAMILIES: tuple[Family, ...] = get_args(Family)

# From certain to none: of equal texts the copy with the better evidence is kept.
EVIDENCE = ("file", "dep5", "metadata", "text", "none")


@dataclass(frozen=True)
class Licence:
    """`expression` is SPDX ("MIT", "Apache-2.0 OR MIT") or "" if unknown. `evidence` says where it was found:
    the file's own header, debian/copyright, the package's metadata, or a licence text in the same project."""

    expression: str
    evidence: Literal["file", "dep5", "metadata", "text", "none"]
