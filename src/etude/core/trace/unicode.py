"""Lone surrogates. JSON (`"\\ud83d"`) and Python's file names (PEP 383) can spell half of a surrogate pair, UTF-8 can't.

Each becomes U+FFFD before it can reach a message, a file or a socket. A pair that is spelled in two halves becomes its character.
"""

from __future__ import annotations

import re
from typing import Any


def whole(value: Any) -> Any:
    """JSON values without lone surrogates."""
    if isinstance(value, str):
        return value if is_whole(value) else value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if isinstance(value, list):
        return [whole(item) for item in value]
    return {whole(key): whole(item) for key, item in value.items()} if isinstance(value, dict) else value


def is_whole(text: str) -> bool:
    """Whether a text has an encoding in UTF-8."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


# Control characters but the tab and the line feed, and the characters that reorder what is shown (Unicode's UAX 9).
_UNSEEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def visible(text: str) -> str:
    """A text that shows what it holds: what would steer a terminal or reorder a line is spelled out, as `\\x1b` and `\\u202e`."""
    return _UNSEEN.sub(lambda found: repr(found[0])[1:-1], whole(text).replace("\r\n", "\n"))
