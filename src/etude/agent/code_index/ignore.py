"""`.gitignore` as git reads it (gitignore(5)): nested files, negation, anchors, `**`; the deepest file's last matching line decides.

A folder that is ignored is not entered, so nothing in it can be taken back, as in git. Read here rather than asked of git, since folders
that are no repository have such files too, and every walk would cost a process.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

# Reads a regular file of a tree that somebody else filled, and nothing else: neither a link, nor a pipe, nor a
# device.


def read_regular(path: Path, most: int) -> bytes:
    """At most `most` bytes. A link is not followed, a pipe not waited for. Raises OSError, FileNotFoundError for what is no regular file."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise FileNotFoundError(f"{path} is no regular file")
    with open(descriptor, "rb") as file:
        return file.read(most)


# The rest of a longer ignore file is not read.
MOST_BYTES = 1 << 20
_STAR = "[^/]*"


@dataclass(frozen=True)
class IgnoreRule:
    """One line. `pattern` matches a whole path relative to the folder of the file that has the line."""

    pattern: re.Pattern[str]
    negated: bool
    folders_only: bool


@dataclass(frozen=True)
class Ignores:
    """The rules in force in one folder. `base` is relative to where rules began, "" or ending with `/`; `above` are the outer ones."""

    base: str = ""
    rules: tuple[IgnoreRule, ...] = ()
    above: Ignores | None = None

    def within(self, base: str, texts: Iterable[str]) -> Ignores:
        """These and the rules of a folder further in; texts that say nothing add nothing."""
        rules = tuple(rule for text in texts for rule in parse(text))
        return Ignores(base, rules, self) if rules else self

    def is_ignored(self, path: str, *, folder: bool) -> bool:
        """Whether a path, relative to where rules began, is to be left out."""
        level: Ignores | None = self
        while level is not None:
            inside = path.removeprefix(level.base)
            for rule in reversed(level.rules):
                if (folder or not rule.folders_only) and rule.pattern.fullmatch(inside):
                    return not rule.negated
            level = level.above
        return False


def parse(text: str) -> Iterator[IgnoreRule]:
    """The rules of one file, in order."""
    for line in text.removeprefix("\ufeff").split("\n"):
        line = _stripped(line.removesuffix("\r"))
        if not line or line.startswith("#"):
            continue
        negated = line.startswith("!")
        line = line[negated:]
        folders_only = line.endswith("/")
        line = line.removesuffix("/")
        if line and (source := _regex(line)) is not None:
            yield IgnoreRule(re.compile(source, re.DOTALL), negated, folders_only)


def repository_rules(root: Path) -> tuple[str, Ignores]:
    """What holds in `root` because it lies within a git repository: root's path within it ("" or ending with `/`), and the rules above it."""
    top = next((folder for folder in (root, *root.parents) if (folder / ".git").exists()), root)
    inside = root.relative_to(top).parts
    found = Ignores().within("", read(top / ".git" / "info" / "exclude"))
    for depth in range(len(inside)):
        base = "".join(f"{part}/" for part in inside[:depth])
        found = found.within(base, read(top.joinpath(*inside[:depth]) / ".gitignore"))
    return "".join(f"{part}/" for part in inside), found


def read(file: Path) -> list[str]:
    """The text of an ignore file; [] where there is none that may be read. Git follows no link there either."""
    try:
        return [read_regular(file, MOST_BYTES).decode(errors="replace")]
    except OSError:
        return []


def _stripped(line: str) -> str:
    """Without blanks at the end, unless a backslash keeps one."""
    bare = line.rstrip(" ")
    kept = len(bare) - len(bare.rstrip("\\"))
    return bare + " " if kept % 2 and bare != line else bare


def _regex(line: str) -> str | None:
    """The pattern as a regular expression over the whole relative path; None if it can match nothing.

    Its time grows with the path's length times the pattern's, not with a power of the number of stars: what comes before the last star of a name,
    or before the last `**/`, matches as early as it can and gives nothing back, which is enough since all behind it may lie further on.
    """
    groups, anywhere = [""], ["/" not in line]  # parts between `**/`, and whether any folders may come before each
    name = [""]  # of the name that is being read, the parts between stars
    line, at = line.removeprefix("/"), 0
    while at < len(line):
        if line.startswith("**", at) and (at == 0 or line[at - 1] == "/") and line[at + 2 : at + 3] in ("/", ""):
            if at + 2 == len(line):
                groups[-1], at = groups[-1] + ".+", at + 2
            else:
                groups, anywhere, at = [*groups, ""], [*anywhere, True], at + 3
            continue
        piece, at = _piece(line, at)
        if piece is None:
            return None
        if piece == _STAR:
            name.append("")
        elif piece == "/":
            groups[-1], name = groups[-1] + _name(name) + "/", [""]
        else:
            name[-1] += piece
    groups[-1] += _name(name)
    early = [f"(?>(?:[^/]*/)*?{group})" if any_ else group for group, any_ in zip(groups[:-1], anywhere, strict=False)]
    return "".join(early) + ("(?:.*/)?" if anywhere[-1] else "") + groups[-1]


def _name(parts: list[str]) -> str:
    """One name of a path, by its parts between stars."""
    first, *rest = parts
    if not rest:
        return first
    return first + "".join(f"(?>[^/]*?{part})" for part in rest[:-1]) + _STAR + rest[-1]


def _piece(line: str, at: int) -> tuple[str | None, int]:
    """The expression for the pattern's part at a position, and its end."""
    character = line[at]
    if character == "*":
        while line[at : at + 1] == "*":
            at += 1
        return _STAR, at
    if character == "?":
        return "[^/]", at + 1
    if character == "[":
        return _class(line, at)
    if character == "\\":
        return (re.escape(line[at + 1]), at + 2) if at + 1 < len(line) else (None, at + 1)
    return re.escape(character), at + 1


def _class(line: str, at: int) -> tuple[str | None, int]:
    """A bracket expression; one that is not closed matches nothing, as in git."""
    end = at + 1 + (line[at + 1 : at + 2] in ("!", "^"))
    negated = end > at + 1
    first = end
    end += line[end : end + 1] == "]"
    while end < len(line) and line[end] != "]":
        end += 2 if line[end] == "\\" else 1
    if end >= len(line):
        return None, end
    inner = re.sub(r"([\[&~|])", r"\\\1", line[first:end])
    inner = "\\" + inner if inner.startswith(("^", "]")) else inner
    source = f"(?!/)[{'^' if negated else ''}{inner}]"
    try:
        re.compile(source)
    except re.error:  # a range that runs backwards
        return None, end + 1
    return source, end + 1
