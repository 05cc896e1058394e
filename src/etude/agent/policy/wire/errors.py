"""What a wire message can't say in our words, and how either format tells an error."""

from __future__ import annotations

from typing import Any


class WireError(ValueError):
    """A message that is well formed but can't be represented, or a stream that is none; says which part. The sender's doing."""


class StreamCut(WireError):
    """A stream that ended before its turn did. `whole`: what came could be a whole turn of a server that never says so."""

    def __init__(self, message: str, *, whole: bool = False) -> None:
        super().__init__(message)
        self.whole = whole


class ProviderError(WireError):
    """An error that came as the body of a 200, or within a stream. `status` is the HTTP status that it means."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


# The names that SDKs turn into exceptions of their own.
_OPENAI = {
    400: "invalid_request_error", 401: "authentication_error", 403: "permission_error", 404: "not_found_error",
    422: "invalid_request_error", 429: "rate_limit_error",
}  # fmt: skip
_ANTHROPIC = {**_OPENAI, 403: "permission_error", 413: "request_too_large", 529: "overloaded_error"}


def openai_error(status: int, message: str) -> dict[str, Any]:
    """The body of an error response."""
    return {"error": {"message": message, "type": _OPENAI.get(status, "server_error"), "param": None, "code": None}}


def anthropic_error(status: int, message: str) -> dict[str, Any]:
    """The body of an error response, and the data of an `error` event."""
    return {"type": "error", "error": {"type": _ANTHROPIC.get(status, "api_error"), "message": message}}
