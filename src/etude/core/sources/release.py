"""Which names of versions are releases, in which order, and which were there before a date. Early versions (alpha, rc, nightly …)
are not releases: their differences are taken back as often as not."""

from __future__ import annotations

import re
from datetime import date

# "v1.2.3", "1.2", "v255", "rel_1_4_0", "pkg@2.0.1", "release/3.1": a prefix that ends in a separator, then numbers up to the end.
TAG = re.compile(r"(?P<prefix>(?:.*?[-_/@])?)(?:[vV](?P<counted>\d+(?:[._]\d+)*)|(?P<dotted>\d+(?:[._]\d+)+))")
EARLY = re.compile(r"(?<![a-z])(?:alpha|beta|rc|pre|preview|dev|snapshot|nightly|canary)(?![a-z])", re.IGNORECASE)
# semver.org 2.0.0: three numbers; a "-" starts an early version, a "+" a build of the same one.
SEMVER = re.compile(r"(\d{1,9})\.(\d{1,9})\.(\d{1,9})(?:\+[0-9A-Za-z.-]+)?")


def tag_release(tag: str) -> tuple[str, tuple[int, ...]] | None:
    """The prefix and the numbers of a release's tag; None for any other tag."""
    match = TAG.fullmatch(tag)
    if match is None or EARLY.search(match["prefix"]):
        return None
    numbers = tuple(int(number) for number in re.split(r"[._]", match["counted"] or match["dotted"]))
    return match["prefix"], numbers


def semver_release(version: str) -> tuple[int, int, int] | None:
    """The three numbers of a release in semantic versioning; None for early versions and for anything else."""
    match = SEMVER.fullmatch(version)
    return (int(match[1]), int(match[2]), int(match[3])) if match else None


def checked_day(before: str) -> str:
    """A day as YYYY-MM-DD, or "" for no bound; raises ValueError for anything else."""
    try:
        return before and date.fromisoformat(before).isoformat()
    except ValueError:
        raise ValueError(f"before={before!r} is not a date; write it as YYYY-MM-DD") from None


def is_before(released: str, before: str) -> bool:
    """Whether an ISO time is before the day `before` begins ("" bounds nothing); a release without a time can't be shown to be."""
    return not before or "" < released[:10] < before
