"""Globs as people and models write them, in one plain form that ripgrep and `scripts/search_tree.py` read alike. Pure.

A plain glob holds literal characters, `*`, `?`, character classes, and `**` as a whole part of a path; braces and all that has two readings
become several plain globs, and a file that fits one of them fits. What has two readings: `[id]` is a class and a folder's name
(`app/[id]/page.tsx`), `{id}` a set of one and a name, `a,b` a name and a list, `**.py` one level and any.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import product

# Alternatives of one glob, its characters, and braces within braces; more of them are no glob that a person writes.
MAX_ALTERNATIVES, MAX_CHARS, MAX_BRACES = 128, 1000, 10
_SPECIAL = "*?[]{}!,\\ #"
_POSIX = {
    "alpha": "a-zA-Z", "digit": "0-9", "alnum": "a-zA-Z0-9", "upper": "A-Z", "lower": "a-z", "space": " \t", "blank": " \t",
    "xdigit": "0-9a-fA-F", "word": "a-zA-Z0-9_", "punct": "!-/:-@[-`{-~",
}  # fmt: skip
_CLASS = re.compile(r"\[([!^]?)(\]?(?:\[:\w+:\]|[^\]/])*)\]")


class TooManyAlternatives(Exception):
    """A glob that means more plain globs than MAX_ALTERNATIVES, or is too long or nested too deeply to be expanded; says which."""

    def __init__(self, words: str = f"expands to more than {MAX_ALTERNATIVES} patterns") -> None:
        super().__init__(words)


def plain_globs(glob: str, folder: str = "", root: str = "") -> list[str]:
    """The plain globs of one glob, in order. Without a slash a glob is for names at any depth; with one it is for paths and
    relative to `folder` ("" or a path below the workspace), as well as to the workspace where it begins with `folder`. `root`: the
    workspace's own path, with which an absolute glob begins. Raises TooManyAlternatives."""
    if len(glob) > MAX_CHARS:
        raise TooManyAlternatives(f"is longer than {MAX_CHARS} characters")
    text = _relative(glob.strip(), root)
    found: dict[str, None] = {}
    for part in _listed(text):
        for one in _expanded(part):
            for anchored in _anchored(one, folder):
                found["?" + anchored[1:] if anchored.startswith("!") else anchored] = None  # "!" would exclude
                if len(found) > MAX_ALTERNATIVES:
                    raise TooManyAlternatives
    return list(found)


def literal(text: str) -> str:
    """The plain glob of a text that holds no wildcard."""
    return "".join(f"[{c}]" if c in "*?[{},\\ #" else c for c in text)


def _relative(glob: str, root: str) -> str:
    """Without what says nothing: `./`, the workspace's own path, two slashes. A backslash that escapes nothing separates."""
    glob = re.sub(r"\\(?![*?\[\]{}!,\\ #])", "/", glob)
    if root and (glob == root or glob.startswith(root.rstrip("/") + "/")):
        glob = "/" + glob[len(root.rstrip("/")) :].lstrip("/")
    glob = re.sub(r"/{2,}", "/", glob)
    glob = re.sub(r"(^|/)(?:\./)+", r"\1", glob)
    return glob + "**" if glob.endswith("/") and glob != "/" else glob


def _listed(glob: str) -> list[str]:
    """Itself, and its parts where it is a list with commas outside of braces."""
    parts, depth, start = [], 0, 0
    for at, c in enumerate(glob):
        depth += (c == "{") - (c == "}" and depth > 0)
        if c == "," and depth == 0 and glob[at - 1 : at] != "\\":
            parts.append(glob[start:at].strip())
            start = at + 1
    parts.append(glob[start:].strip())
    return [glob, *parts] if len(parts) > 1 and all(parts) else [glob]


def _expanded(glob: str, within: int = 0) -> list[str]:
    """Plain globs without their anchor: the product of what each piece may be. `within`: the depth of braces."""
    if within > MAX_BRACES:
        raise TooManyAlternatives(f"holds more than {MAX_BRACES} braces within braces")
    pieces: list[list[str]] = []
    at = 0
    while at < len(glob):
        c = glob[at]
        if c == "\\" and glob[at + 1 : at + 2] and glob[at + 1] in _SPECIAL:
            pieces.append([literal(glob[at + 1])])
            at += 2
        elif c == "[" and (match := _CLASS.match(glob, at)):
            text = match[0]
            pieces.append([*_class(match[1], match[2]), literal(text)])
            at = match.end()
        elif c == "{" and (stop := _closing(glob, at)) > 0:
            pieces.append(_braces(glob[at + 1 : stop], within + 1))
            at = stop + 1
        elif c == "*":
            stop = at + len(glob[at:]) - len(glob[at:].lstrip("*"))
            pieces.append(_stars(glob, at, stop))
            at = stop
        else:
            pieces.append([c if c in "?/" else literal(c)])
            at += 1
    size = 1
    for piece in pieces:
        size *= len(piece)
        if size > MAX_ALTERNATIVES:
            raise TooManyAlternatives
    return ["".join(chosen) for chosen in product(*pieces)]


def _class(negation: str, inner: str) -> list[str]:
    """A class as a plain one; none where it has no members or a range that runs backwards."""
    inner = re.sub(r"\[:(\w+):\]", lambda match: _POSIX.get(match[1], ""), inner)
    if not inner or any(a > b for a, b in re.findall(r"(.)-(.)", inner)):
        return []
    first = "]" if "]" in inner else ""  # it closes the class anywhere else
    inner = inner.replace("]", "")
    if negation:
        return [f"[!{first}/{inner}]"]
    return [f"[{inner[1:]}^]" if not first and inner.startswith("^") and len(inner) > 1 else f"[{first}{inner}]"]


def _closing(glob: str, start: int) -> int:
    """Where the brace that opens at `start` closes; -1 if it does not."""
    depth = 0
    for at in range(start, len(glob)):
        depth += (glob[at] == "{") - (glob[at] == "}")
        if depth == 0:
            return at
    return -1


def _braces(inner: str, within: int) -> list[str]:
    options, depth, start = [], 0, 0
    for at, c in enumerate(inner):
        depth += (c == "{") - (c == "}")
        if c == "," and depth == 0:
            options.append(inner[start:at])
            start = at + 1
    options.append(inner[start:])
    found = [one for option in options for one in _expanded(option, within)]
    return found if len(options) > 1 else [*found, literal("{" + inner + "}")]


def _stars(glob: str, at: int, stop: int) -> list[str]:
    """One star, or several: alone between slashes they are any folders, within a name they are also any."""
    if stop - at == 1:
        return ["*"]
    begins, ends = at == 0 or glob[at - 1] == "/", stop == len(glob) or glob[stop] == "/"
    if begins and ends:
        return ["**"]
    return ["*", "**/*" if begins else "*/**" if ends else "*/**/*"]


def _anchored(glob: str, folder: str) -> Iterable[str]:
    """For names as it is; for paths from the workspace."""
    name = glob.replace("[!/", "[!").replace("[!]/", "[!]")  # a class for names needs no slash
    while name.startswith("**/"):
        name = name[3:]
    if "/" not in name:
        return [name] if not folder or "**" not in name else [f"/{literal(folder)}/{name}"]
    bare = glob.removeprefix("/")
    if not folder:
        return [f"/{bare}"]
    inside = f"{literal(folder)}/"
    return [f"/{inside}{bare}", *([f"/{bare}"] if bare.startswith(inside) else [])]
