"""What a reader of logs is given, and the words it answers with: those of the SWE-bench family."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

PASSED, FAILED, SKIPPED, ERROR, XFAIL = WORDS = ("PASSED", "FAILED", "SKIPPED", "ERROR", "XFAIL")

# Test name to a word; pytest's summary lines give their first word unchanged, which may be no word of these.
Statuses = dict[str, str]


class UnreadableLog(ValueError):
    """A log that its reader can't take: says what it met. `swebench` ends with an exception there, and such a run is never resolved."""


@dataclass(frozen=True)
class RunLog:
    """The text of a run, with `\\n` alone as the end of a line. A few readers go by the row's id or version."""

    text: str
    instance_id: str = ""
    version: str = ""

    @property
    def lines(self) -> list[str]:
        return self.text.split("\n")


Reader = Callable[[RunLog], Statuses]
