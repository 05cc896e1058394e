"""JSON can spell half a surrogate pair, UTF-8 can't: it becomes U+FFFD before it can reach a file or a socket."""

from __future__ import annotations

from typing import Any


def whole(value: Any) -> Any:
    """JSON values without lone surrogates."""
    if isinstance(value, str):
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if isinstance(value, list):
        return [whole(item) for item in value]
    return {whole(key): whole(item) for key, item in value.items()} if isinstance(value, dict) else value
