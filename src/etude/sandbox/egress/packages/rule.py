"""Which packages, up to when. Pure.

A task is set in the past of its project: its own package and whatever was published later would be the answer. So a rule names what may be had
(with the dependencies it needs: resolved names, listed), and the last moment of publication. What has no date is later than any date.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable
from dataclasses import dataclass

from etude.sandbox.egress.errors import BadRule, RequestRefused

_SEPARATORS = re.compile(r"[-_.]+")
_PIP_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?")
_NPM_NAME = re.compile(r"(?:@[a-z0-9~_-][a-z0-9._~-]*/)?[a-z0-9~_-][a-z0-9._~-]*", re.IGNORECASE)


def pip_name(text: str) -> str:
    """Normalised (PEP 503). Raises BadRule."""
    name = _SEPARATORS.sub("-", text).lower()
    if not _PIP_NAME.fullmatch(name):
        raise BadRule(f"{text!r} is no package name of pip's")
    return name


def npm_name(text: str) -> str:
    """Raises BadRule."""
    if not _NPM_NAME.fullmatch(text) or len(text) > 214:  # npm's own limit
        raise BadRule(f"{text!r} is no package name of npm's")
    return text


@dataclass(frozen=True)
class PackageFilter:
    """`names` and `deny` normalised. `until` None: without a bound. `every`: all that is not denied."""

    names: frozenset[str]
    until: datetime.datetime | None = None
    deny: frozenset[str] = frozenset()
    every: bool = False

    def require(self, text: str, normal: Callable[[str], str]) -> str:
        """The normal name of what is asked for. Raises Refused: 404 for no name at all, 403 for one that is not listed."""
        try:
            name = normal(text)
        except BadRule as problem:
            raise RequestRefused(404, str(problem)) from None
        if name in self.deny:
            raise RequestRefused(403, f"{name} is denied to this sandbox")
        if not self.every and name not in self.names:
            raise RequestRefused(403, f"{name} is not on this sandbox' list of packages")
        return name

    def in_time(self, published: str | None) -> bool:
        """`published`: ISO 8601, as indexes write it."""
        if self.until is None:
            return True
        try:
            moment = datetime.datetime.fromisoformat(published or "")
        except ValueError:
            return False
        return (moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)) <= self.until


def moment(text: str) -> datetime.datetime:
    """`2024-05-01` is the end of that day in UTC; with a time it is that time. Raises BadRule."""
    try:
        if len(text) == len("2024-05-01"):
            day = datetime.datetime.fromisoformat(text).replace(tzinfo=datetime.UTC)
            return day + datetime.timedelta(days=1, microseconds=-1)
        found = datetime.datetime.fromisoformat(text)
    except ValueError:
        raise BadRule(f"{text!r} is no date; write 2024-05-01 or 2024-05-01T12:00:00Z") from None
    return found if found.tzinfo else found.replace(tzinfo=datetime.UTC)
