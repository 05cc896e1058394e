"""TOML that somebody else may have written, read within bounds.

`tomllib` takes a time and a memory that grow with the square of a dotted key's length: a key of 50,000 dots takes a minute and 8 GiB. Many shorter
ones cost some 16 microseconds and 1 KiB a part. Files beyond the bounds are refused before they are parsed.
"""

from __future__ import annotations

import re
import tomllib
from typing import Any

MOST_CHARS = 1 << 20  # above any recipe or task
MOST_KEY_PARTS = 64  # a recipe has four
MOST_DOTTED_PARTS = 20_000  # of all dotted keys and tables together
# A key's part, bare or quoted. Nothing here gives back what it matched, and a string without an end is one match: the search is linear in the text.
_PART = r"""(?:[\w-]++|"(?:[^"\\\n]|\\[^\n])*+"?+|'[^'\n]*+'?+)"""
_DOT = r"[ \t]*+\.[ \t]*+"
# Strings of several lines and comments, which hold no keys; then names with dots, which are keys before "=" and in the brackets of a table.
_TOKEN = re.compile(
    r""""{3}(?:[^"\\]|\\[\s\S]|"{1,2}(?!"))*+(?:"{3,5})?+|'{3}(?:[^']|'{1,2}(?!'))*+(?:'{3,5})?+|#[^\n]*+"""
    rf"|(?P<key>{_PART}(?:{_DOT}{_PART})*+)(?P<end>[ \t]*+(?:=|\]{{1,2}}[ \t]*+(?=[#\r\n]|\Z)))?+"
)
_PARTS = re.compile(_PART)


class TomlRefused(ValueError):
    """No TOML, or more of it than is read; says what is wrong."""


def loads(text: str) -> dict[str, Any]:
    """The document; a byte-order mark at the beginning, as Windows editors write it, is dropped. Raises TomlRefused."""
    text = text.removeprefix("\ufeff")
    if len(text) > MOST_CHARS:
        raise TomlRefused(f"it has {len(text):,} characters, more than the {MOST_CHARS:,} that are read")
    _check_keys(text)
    try:
        return tomllib.loads(text)
    except RecursionError as error:
        raise TomlRefused("it is nested too deeply") from error
    except ValueError as error:  # of TOML, and of numbers with too many digits
        raise TomlRefused(str(error)) from error


def _check_keys(text: str) -> None:
    """Raises TomlRefused for keys of too many parts. Numbers have dots as well, and no "=" or end of a table's line behind them."""
    whole = 0
    for found in _TOKEN.finditer(text):
        if found["key"] is None or "." not in found["key"]:
            continue
        parts = len(_PARTS.findall(found["key"]))
        if parts > MOST_KEY_PARTS:
            line = text.count("\n", 0, found.start()) + 1
            raise TomlRefused(f"line {line} has a key of more than {MOST_KEY_PARTS} parts")
        whole += parts if parts > 1 and found["end"] else 0
    if whole > MOST_DOTTED_PARTS:
        raise TomlRefused(f"its dotted keys have {whole:,} parts, more than the {MOST_DOTTED_PARTS:,} that are read")
