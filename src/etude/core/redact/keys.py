"""API keys from environment variables: checked before they are used, and masked wherever an error becomes text.

Promise: no key that this process reads reaches a terminal, a log or a session through the text of an error.
"""

from __future__ import annotations

import json
import logging
import os
import re
import traceback
from typing import Any
from urllib.parse import quote

# What an Authorization header can carry (RFC 9110, section 11.4): visible ASCII characters.
_KEY = re.compile(r"[\x21-\x7e]+")
# What variables, headers and fields that hold a secret are called. Not TOKENIZER and not AUTHOR.
_SECRET_NAME = re.compile(
    r"KEY|TOKEN(?!I[SZ])|SECRET|PASSW|PASSPHRASE|CREDENTIAL|BEARER|OAUTH|(?:^|[_-])AUTH(?!OR(?!IZ))|"
    r"(?:^|[_-])PAT(?:[_-]?\d+)?$|_PWD$|^PGPASS",
    re.IGNORECASE,
)
# Shorter values are placeholders such as `none` or `EMPTY`, which are words of ordinary sentences.
_LEAST_CHARS = 8
_USER = re.compile(r"(?<=://)[^/@\s'\"]+@")
_QUERY = re.compile(r"(?<=[?&])((?:api[_-]?)?key|token|access_token|secret|password)=[^&\s'\"]+", re.IGNORECASE)
# "missing bearer or basic authentication" names no token.
_BEARER = re.compile(
    r"(?<=Bearer )(?!(?:tokens?|or|and|is|in|for|auth\w*|scheme|headers?|credentials?|realm|format|prefix)\b)[^\s'\"]+",
    re.IGNORECASE,
)

_read: set[str] = set()  # names of variables that hold keys whatever they are called


class BadKey(ValueError):
    """A variable holds something that no header can carry. The message names the variable and never its value."""


def api_key(variable: str) -> str:
    """The key in this environment variable, or "" if it is not set. Raises BadKey for one that can't be a header's value."""
    _read.add(variable)
    key = os.environ.get(variable, "")
    if not key or _KEY.fullmatch(key):
        return key
    place = next(i for i, char in enumerate(key) if not _KEY.fullmatch(char))
    raise BadKey(
        f"the value of {variable} can't be an API key: character {place + 1} of {len(key)} is {_kind(key[place])}; "
        f"set {variable} to the key alone"
    )


def bearer(variable: str) -> dict[str, str]:
    """The headers that carry the key of this variable; none if it is not set. Raises BadKey."""
    key = api_key(variable)
    return {"Authorization": f"Bearer {key}"} if key else {}


def is_secret_name(name: str) -> bool:
    """Whether a variable, a header or a field of this name holds a secret. The one rule: what is masked in a text is also kept from commands
    and from the answers of servers."""
    return _SECRET_NAME.search(name) is not None


def mask_keys(text: str) -> str:
    """The text without keys: values of variables that hold keys, users and passwords in addresses, bearer tokens."""
    for variable, value in _secrets():
        text = without(text, value, f"[{variable}]")
    text = _USER.sub("[hidden]@", text)
    text = _QUERY.sub(r"\1=[hidden]", text)
    return _BEARER.sub("[hidden]", text)


def without(text: str, secret: str, shown: str) -> str:
    """The text with `shown` for every spelling of a secret: as it is, without blanks at its ends, escaped for Python and for JSON, in an
    address."""
    spellings = (repr(secret)[1:-1], json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1])
    for form in (secret, *spellings, secret.strip(), quote(secret, safe="", errors="replace")):
        text = text.replace(form, shown) if form else text
    return text


class MaskedRecord(logging.LogRecord):
    """An entry of a log without keys, its traceback included; for `logging.setLogRecordFactory`, so that it holds for the handlers of
    libraries too: a formatter takes the text of a traceback that is there."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        if self.exc_info and self.exc_info[0] is not None:
            self.exc_text = mask_keys("".join(traceback.format_exception(*self.exc_info)).rstrip("\n"))
        if self.stack_info:
            self.stack_info = mask_keys(self.stack_info)

    def getMessage(self) -> str:
        return mask_keys(super().getMessage())


def _secrets() -> list[tuple[str, str]]:
    """Variables and their values, the longest value first: one may be a part of another."""
    names = {name for name in os.environ if name in _read or is_secret_name(name)}
    values = ((name, os.environ.get(name, "")) for name in names)
    found = [(name, value) for name, value in values if len(value.strip()) >= _LEAST_CHARS and not _is_path(value)]
    return sorted(found, key=lambda pair: -len(pair[1]))


def _is_path(value: str) -> bool:
    """Whether it names a file that holds a key: errors name it too, and must."""
    return value.startswith(("/", "~")) and os.path.exists(os.path.expanduser(value))


def _kind(char: str) -> str:
    if char in "\r\n":
        return "a line break"
    if char in "\u2018\u2019\u201c\u201d\u201e\u00ab\u00bb":
        return "a typographic quote"
    if char.isspace():
        return "a blank"
    return "no ASCII character" if ord(char) > 127 else "a control character"
