"""Former spellings of verbs. A hidden verb prints its present spelling on stderr and does what it did; one release later it is removed."""

from __future__ import annotations

import sys


def print_present_spelling(former: str, present: str) -> None:
    """On stderr, so that the one document of --json stays alone on stdout."""
    print(
        f"note: `etude {former}` is now `etude {present}`; the former spelling ends with the next release",
        file=sys.stderr,
    )
