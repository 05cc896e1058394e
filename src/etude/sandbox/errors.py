"""Every way in which a sandbox can fail, typed. Only `UserError` and its kinds may ever become evidence; `InfraError` is ours."""

from __future__ import annotations


class SandboxError(Exception):
    """Base of all sandbox errors."""


class UserError(SandboxError):
    """The inside's or the caller's doing (bad path, too large a file): evidence, not a fault of ours."""


class OOMKilled(UserError): ...


class PidsExhausted(UserError): ...


class DiskFull(UserError): ...


class OutputLimit(UserError): ...


class InfraError(SandboxError):
    """Ours. Never a reward; retried while `retryable`."""

    retryable = True


class SandboxDied(InfraError): ...


class SandboxNotFound(InfraError): ...


class ServiceFailed(InfraError):
    """A service or the start script did not come up; says what it printed last."""

    retryable = False


class LayerCorrupt(InfraError):
    """A layer's content is not what its digest says: refused at restore, never served."""

    retryable = False


class CapacityExhausted(InfraError):
    def __init__(self, message: str, retry_after_s: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class Unsupported(InfraError):
    """A demand this back end can't meet here; says which and what to do."""

    retryable = False
