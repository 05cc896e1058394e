"""Tests that ask for a network, a server or an account, by the names of their folders and files. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

_NAMES = "integration|e2e|end_to_end|end-to-end|functional|live|online|network|acceptance|system"
_SERVICES = re.compile(rf"(^|[/_.-])({_NAMES})([/_.-]|_?tests?[/.])")


def without_services(paths: Sequence[str]) -> list[str]:
    """Those that ask for nothing outside; all where none is left. An environment is judged by them."""
    return [path for path in paths if not _SERVICES.search(path)] or list(paths)
