"""The files that many sessions begin with, named by their content: what a rollout's overlay lies over."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class Base:
    """A task's repository: path -> bytes."""

    files: Mapping[str, bytes]

    @cached_property
    def digest(self) -> str:
        """32 hex digits over paths and bytes; lengths stand before bytes, so that no two trees run into the same text."""
        found = hashlib.blake2b(digest_size=16)
        for path, data in sorted(self.files.items()):
            name = path.encode(errors="surrogateescape")
            found.update(b"%d %d " % (len(name), len(data)) + name + data)
        return found.hexdigest()
