"""Texts with their paths, one after the other, cut to a length: the byte format of a project string.

Each section begins with a line `==> path <==`, as `head` and `tail` print several files, which is also how an agent sees them; a section that
was cut goes on under `==> path (continued) <==`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Section:
    path: str
    text: str
    continued: bool = False

    def __str__(self) -> str:
        end = "" if self.text.endswith("\n") else "\n"
        return f"{self.heading}{self.text}{end}\n"

    @property
    def heading(self) -> str:
        return f"==> {self.path}{' (continued)' if self.continued else ''} <==\n"

    @property
    def chars(self) -> int:
        """Of `str(self)`, without making it."""
        return len(self.heading) + len(self.text) + 2 - self.text.endswith("\n")


def cut(sections: Sequence[Section], longest_chars: int, *, from_the_end: bool = False) -> list[list[Section]]:
    """Groups of sections in their order, each as full as goes within `longest_chars`; only a section that is longer than that is
    cut itself, between lines where there are any. `from_the_end` fills the last group first."""
    parts = [part for section in sections for part in _parts(section, longest_chars)]
    groups: list[list[Section]] = []
    used = longest_chars
    for part in reversed(parts) if from_the_end else parts:
        if used + part.chars > longest_chars or not groups:
            groups.append([])
            used = 0
        groups[-1].append(part)
        used += part.chars
    return [group[::-1] for group in reversed(groups)] if from_the_end else groups


def _parts(section: Section, longest_chars: int) -> Iterable[Section]:
    room = longest_chars - len(Section(section.path, "", continued=True).heading) - 2
    if room < 1:
        raise ValueError(
            f"no text of {section.path} fits in {longest_chars} characters together with its heading; take a longer bucket"
        )
    rest = section
    while rest.chars > longest_chars:
        end = rest.text.rfind("\n", 0, room) + 1 or room
        yield Section(rest.path, rest.text[:end], rest.continued)
        rest = Section(rest.path, rest.text[end:], continued=True)
    yield rest
