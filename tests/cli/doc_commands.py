"""The command lines of the documentation: found in its pages, and taken apart as a shell takes them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "AGENTS.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
INLINE = re.compile(r"`(?:\./)?(etude [^`]+)`")
SHOWN = re.compile(r"(?:\./)?etude ")
COMMENT = re.compile(r"\s#\s.*")
# A page may leave out what does not matter there; brackets are around what may be left out.
LEFT_OUT, BRACKETS = re.compile(r"(?<=\s)(?:…|\.\.\.|\[DIR…?\])(?=\s|$)"), re.compile(r"[\[\]]")
# `etude corpus show|export` names two verbs.
EITHER = re.compile(r"^\w+(?:\|\w+)+$")


@dataclass(frozen=True)
class DocCommand:
    """`words` are the arguments after `etude`. `whole` is false for a line that leaves out arguments, as the text may."""

    page: str
    line: str
    words: tuple[str, ...]
    whole: bool

    def __str__(self) -> str:
        return f"{self.page}: {self.line}"


def fenced(page: Path) -> Iterator[DocCommand]:
    """The commands of the page's code blocks, comments taken off, continued lines joined."""
    for language, block in FENCE.findall(page.read_text(encoding="utf-8")):
        for line in () if language not in ("", "sh", "bash") else block.replace("\\\n", " ").splitlines():
            for part in COMMENT.sub("", line).split("; ") if SHOWN.match(line) else ():
                yield from _commands(page, part, whole=not LEFT_OUT.search(part))


def inline(page: Path) -> Iterator[DocCommand]:
    """The commands that the page's text names in backticks."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    for found in INLINE.findall(text):
        yield from _commands(page, BRACKETS.sub("", found), whole=False)


def _commands(page: Path, line: str, *, whole: bool) -> Iterator[DocCommand]:
    words = shlex.split(LEFT_OUT.sub("", line))[1:]
    either = next((at for at, word in enumerate(words) if EITHER.match(word)), None)
    choices = words[either].split("|") if either is not None else [""]
    for choice in choices:
        chosen = [choice if at == either else word for at, word in enumerate(words)]
        yield DocCommand(str(page.relative_to(ROOT)), line.strip(), tuple(chosen), whole)
