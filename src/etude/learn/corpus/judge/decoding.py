"""Bytes to text without a guess: UTF-8, UTF-16 behind its byte order mark, or what a Python file declares about itself (PEP 263).

The textbook asks a statistical detector; it is wrong often enough on short files that the model would learn mojibake. A refused file costs less."""

from __future__ import annotations

import codecs
import re

# PEP 263: a comment in the first or second line; the form that Emacs and Vim use as well.
COOKIE = re.compile(rb"^[ \t\f]*#.*?coding[:=][ \t]*([-_.a-zA-Z0-9]+)")
# Declared encodings that are taken at their word: single bytes that mean one thing each, and the few that declare themselves in old sources.
DECLARED = frozenset((
    "iso8859-1", "iso8859-15", "iso8859-2", "cp1252", "cp1251", "koi8-r", "cp1250", "mac-roman", "euc_jp", "shift_jis", "euc_kr", "gbk", "gb2312",
    "big5", "cp932", "iso8859-5", "iso8859-7", "iso8859-9", "koi8-u", "cp949",
))  # fmt: skip


def decode(data: bytes, *, python: bool) -> str | None:
    """The text with "\\n" line ends and without a byte order mark; None if the encoding isn't certain."""
    text = _decode(data, python=python)
    return text.replace("\r\n", "\n").replace("\r", "\n") if text is not None and "\r" in text else text


def _decode(data: bytes, *, python: bool) -> str | None:
    try:
        if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            return data.decode("utf-16")
        return data.removeprefix(codecs.BOM_UTF8).decode("utf-8")
    except UnicodeDecodeError:
        declared = declared_encoding(data) if python else None
    if declared is None:
        return None
    try:
        return data.decode(declared)
    except UnicodeDecodeError:
        return None


def declared_encoding(data: bytes) -> str | None:
    """The codec that a Python file declares, if it is one that is taken at its word."""
    for line in data.split(b"\n", 2)[:2]:
        if found := COOKIE.match(line):
            try:
                name = codecs.lookup(found[1].decode("ascii")).name
            except LookupError:
                return None
            return name if name in DECLARED else None
        if line.strip() and not line.lstrip().startswith(b"#"):
            return None
    return None
