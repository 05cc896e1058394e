"""What private indexes want to be told, by the place it is for. Kept outside of every sandbox, sent to that place alone, never printed.

Names and passwords come with an index' own URL, tokens from npm's settings. A link within the same server is asked with them too: private
mirrors serve their files from where their pages lie. A link or redirect to another server is not.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit

_PORTS = {"http": 80, "https": 443}


class Credentials:
    def __init__(self, urls: Sequence[str], tokens: Sequence[tuple[str, str]] = ()) -> None:
        """`tokens`: a place as npm writes it, `//host/path/`, and the token for all below it."""
        self._basic: dict[tuple[str, str, int], str] = {}
        self._tokens = sorted(tokens, key=lambda one: -len(one[0]))
        for url in urls:
            parts = urlsplit(url)
            if parts.username is not None and parts.scheme in _PORTS:
                said = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
                self._basic[_place(parts)] = "Basic " + base64.b64encode(said.encode()).decode("ascii")

    def __repr__(self) -> str:
        return f"Credentials({len(self._basic) + len(self._tokens)})"

    def of(self, url: str) -> dict[str, str]:
        """Headers for this address; none where it is nobody's."""
        parts = urlsplit(url)
        if parts.scheme not in _PORTS:
            return {}
        where = f"//{parts.hostname}{_shown_port(parts)}{parts.path}"
        for below, token in self._tokens:
            if where.startswith(below):
                return {"Authorization": f"Bearer {token}"}
        said = self._basic.get(_place(parts))
        return {"Authorization": said} if said else {}


def bare(url: str) -> str:
    """The address without name and password."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def _place(parts: SplitResult) -> tuple[str, str, int]:
    return parts.scheme, parts.hostname or "", parts.port or _PORTS[parts.scheme]


def _shown_port(parts: SplitResult) -> str:
    return "" if parts.port in (None, _PORTS[parts.scheme]) else f":{parts.port}"
