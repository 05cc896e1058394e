"""The order of Debian versions (deb-version(7)): epoch, upstream version, revision; "~" sorts before everything, even the end."""

from __future__ import annotations

import re

PART = re.compile(r"(\D*)(\d*)")

Key = tuple[int, list[tuple[list[int], int]], list[tuple[list[int], int]]]


def key(version: str) -> Key:
    """A sort key. Versions that compare as equal ("1.0", "1.00") have equal keys."""
    epoch, colon, rest = version.partition(":")
    if not (colon and epoch.isdigit()):
        epoch, rest = "0", version
    upstream, dash, revision = rest.rpartition("-")
    return int(epoch), _parts(upstream if dash else rest), _parts(revision if dash else "0")


def _parts(text: str) -> list[tuple[list[int], int]]:
    """Text and number in turn. Each text ends in a 0, which sorts between "~" and the letters."""
    pairs = [(letters, digits) for letters, digits in PART.findall(text) if letters or digits]
    # The end follows the last part: an empty text and a 0, above "~" and below all else.
    return [([*map(_order, letters), 0], int(digits or 0)) for letters, digits in pairs] + [([0], 0)]


def _order(character: str) -> int:
    if character == "~":
        return -1
    # Letters before all else that isn't a digit.
    return ord(character) if character.isalpha() else ord(character) + 0x110000
