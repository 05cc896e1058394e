"""A stretch of a text that must go, and what it is."""

from __future__ import annotations

from typing import NamedTuple

# What a placeholder says; every other kind is a secret and gets `SECRET_<KIND>`.
PERSONAL = {"email": "EMAIL", "ip_address": "IP", "phone": "PHONE", "name": "NAME", "home": "USER"}


class Finding(NamedTuple):
    """`text[start:end]` is of this kind; the part outside stays as it is."""

    start: int
    end: int
    kind: str

    @property
    def label(self) -> str:
        """The placeholder without its number: "EMAIL", "SECRET_AWS_KEY"."""
        return PERSONAL.get(self.kind, f"SECRET_{self.kind.upper()}")
