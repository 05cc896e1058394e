"""Which files are text worth learning from. Every refusal has a reason, and the reasons are counted, never silent."""

from __future__ import annotations

import ast
import warnings

from etude.corpus.settings import CorpusSettings

# Control characters that occur in text; any other below 0x20 means a binary file.
TEXT_CONTROLS = frozenset(b"\t\n\r\f")


class Refused(Exception):
    """This file is not taken; the message is the reason that is counted."""


def clean(data: bytes, settings: CorpusSettings, *, python: bool) -> str:
    """The text of a file with `\\n` line ends; raises Refused. `python` files must also parse."""
    if len(data) > settings.max_file_bytes:
        raise Refused("too large")
    if len(data) < settings.min_file_bytes:
        raise Refused("too small")
    if any(byte < 0x20 and byte not in TEXT_CONTROLS for byte in set(data)):
        raise Refused("binary")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise Refused("not UTF-8") from None
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if max(map(len, text.split("\n"))) > settings.max_line_chars:
        raise Refused("long lines")
    if python and not _parses(text):
        raise Refused("not valid Python")
    return text


def _parses(text: str) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # invalid escapes in other people's strings are not our news
        try:
            ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return False
    return True
