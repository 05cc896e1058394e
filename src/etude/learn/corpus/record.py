"""One text of the library with its whole provenance: what it is, whose it is, under which licence and how that is known."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from etude.core.licence.licence import Licence

Kind = Literal["file", "diff", "patch", "changelog"]


@dataclass(frozen=True)
class TextRecord:
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
