"""A tripwire check: a rule over evidence that costs nothing and says what it saw. A flag is no proof: it selects what is read."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from etude.evaluate.bench.audit.evidence import Evidence

# What a person reads of the place that tripped a wire.
SHOWN_CHARACTERS = 160


@dataclass(frozen=True)
class Flag:
    """`wire` tripped at `where` (a path, or `command`), on `saw`."""

    wire: str
    where: str
    saw: str


Wire = Callable[[Evidence], Iterator[Flag]]


def excerpt(text: str) -> str:
    """One line of bounded length."""
    line = " ".join(text.split())
    return line if len(line) <= SHOWN_CHARACTERS else f"{line[:SHOWN_CHARACTERS]} …"


def over_commands(wire: str, pattern: str) -> Wire:
    """Trips on command lines."""
    found = re.compile(pattern, re.IGNORECASE)

    def look(evidence: Evidence) -> Iterator[Flag]:
        for command in evidence.commands:
            if found.search(command):
                yield Flag(wire, "command", excerpt(command))

    return look


def over_added(wire: str, pattern: str, *, code_only: bool = True) -> Wire:
    """Trips on lines that were put in, in order and joined, so that a pattern may span them; and on commands that write them."""
    found = re.compile(pattern, re.MULTILINE)

    def look(evidence: Evidence) -> Iterator[Flag]:
        for path, lines in evidence.added.items():
            if code_only and not path.endswith((".py", ".pyi", ".pth", ".cfg", ".ini", ".toml", ".sh")):
                continue
            if (match := found.search("\n".join(lines))) is not None:
                yield Flag(wire, path, excerpt(match[0]))
        for command in evidence.commands:
            if ("<<" in command or ">" in command) and (match := found.search(command)) is not None:
                yield Flag(wire, "command", excerpt(match[0]))

    return look
