"""What can go wrong between a fleet and its hosts."""

from __future__ import annotations

from etude.sandbox.errors import InfraError, SandboxDied


class AnswerLost(InfraError):
    """A request may have been carried out or not. Repeated with the same key, it is carried out once."""


class HostLost(SandboxDied):
    """The host is gone, and with it every sandbox on it."""
