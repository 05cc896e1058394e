"""TOML that somebody else may have written, read within bounds.

`tomllib` takes a time and a memory that grow with the square of a dotted key's length: a key of 50,000 dots takes a minute and 8 GiB. Files beyond
the bounds are refused before they are parsed.
"""

from __future__ import annotations

import re
import tomllib
from typing import Any

MOST_CHARS = 4 << 20  # far above any recipe, task or lock file
MOST_KEY_PARTS = 64  # a recipe has four
# MOST_KEY_PARTS parts of a key in a row, bare or quoted, with dots between them. A match begins only where a word does, and gives nothing back:
# the search is linear in the text.
_PART = r"""(?:[\w-]++|"(?:[^"\\\n]++|\\.)*+"|'[^'\n]*+')"""
_LONG_KEY = re.compile(rf"(?<![\w.-])(?:{_PART}[ \t]*+\.[ \t]*+){{{MOST_KEY_PARTS}}}")


class TomlRefused(ValueError):
    """No TOML, or more of it than is read; says what is wrong."""


def loads(text: str) -> dict[str, Any]:
    """The document; a byte-order mark at the beginning, as Windows editors write it, is dropped. Raises TomlRefused."""
    text = text.removeprefix("\ufeff")
    if len(text) > MOST_CHARS:
        raise TomlRefused(f"it has {len(text):,} characters, more than the {MOST_CHARS:,} that are read")
    if (found := _LONG_KEY.search(text)) is not None:
        raise TomlRefused(
            f"line {text.count(chr(10), 0, found.start()) + 1} has a key of more than {MOST_KEY_PARTS} parts"
        )
    try:
        return tomllib.loads(text)
    except RecursionError as error:
        raise TomlRefused("it is nested too deeply") from error
    except ValueError as error:  # of TOML, and of numbers with too many digits
        raise TomlRefused(str(error)) from error
