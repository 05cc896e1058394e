"""What people do to a file that they copy: the edits by which near duplicates are planted."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

LICENCE = """# Copyright (c) 2019-2024 The {0} authors. All rights reserved.
#
# This file is licensed to you under the terms of the {0} licence; you may not use it except in compliance with them.
# It is distributed on an "as is" basis, without warranties or conditions of any kind, either express or implied.

"""
FUNCTION = """

def {0}_all(values, *, limit=None):
    found = []
    for number, value in enumerate(values):
        if limit is not None and number >= limit:
            break
        found.append({0}(value))
    return found
"""
NAME = re.compile(r"\b[A-Za-z_]{4,}\b")


def rename_in_some_lines(text: str, rng: random.Random) -> str:
    """Two names get new ones in a stretch of a quarter of the lines."""
    lines = text.split("\n")
    size = max(1, len(lines) // 4)
    start = rng.randrange(max(1, len(lines) - size))
    part = "\n".join(lines[start : start + size])
    for name in rng.sample(sorted(set(NAME.findall(part))), k=min(2, len(set(NAME.findall(part))))):
        part = re.sub(rf"\b{name}\b", f"{name}_{rng.choice('xyz')}", part)
    return "\n".join([*lines[:start], part, *lines[start + size :]])


def change_licence_header(text: str, rng: random.Random) -> str:
    lines = text.split("\n")
    while lines and (lines[0].startswith("#") or not lines[0].strip()):
        lines.pop(0)
    return LICENCE.format(rng.choice(["Aldan", "Vilyui", "Olenek"])) + "\n".join(lines)


def reformat(text: str, rng: random.Random) -> str:
    """Other indentation, spaces after brackets, blank lines."""
    text = re.sub(r"^( +)", lambda found: found.group(1)[: len(found.group(1)) // 2], text, flags=re.MULTILINE)
    text = text.replace("(", "( ").replace(", ", ",")
    return text.replace("\n\n", rng.choice(["\n", "\n\n\n"]))


def add_function(text: str, rng: random.Random) -> str:
    return text + FUNCTION.format(rng.choice(["load", "check", "render"]))


def remove_function(text: str, rng: random.Random) -> str:
    """One function of at most a fifth of the file goes."""
    blocks = re.split(r"(?m)^(?=(?:    )?(?:async )?def )", text)
    small = [i for i in range(1, len(blocks)) if len(blocks[i]) < len(text) / 5]
    gone = rng.choice(small) if small else -1
    return "".join(block for i, block in enumerate(blocks) if i != gone)


def edit_lines(text: str, rng: random.Random) -> str:
    """5 to 10% of the lines that hold something: a token changed, a line moved in, doubled or dropped."""
    lines = text.split("\n")
    full = [i for i, line in enumerate(lines) if line.strip()]
    for i in rng.sample(full, k=max(1, int(len(full) * rng.uniform(0.05, 0.10)))):
        kind = rng.random()
        if kind < 0.6:
            names = NAME.findall(lines[i])
            lines[i] = lines[i].replace(rng.choice(names), "changed") if names else lines[i] + "  # changed"
        elif kind < 0.75:
            lines[i] = f"{lines[i]}\n{rng.choice(lines)}"
        elif kind < 0.9:
            lines[i] = ""
        else:
            lines[i] = rng.choice(lines)
    return "\n".join(lines)


EDITS: tuple[Callable[[str, random.Random], str], ...] = (
    rename_in_some_lines,
    change_licence_header,
    reformat,
    add_function,
    remove_function,
    edit_lines,
)


def edited_copy(text: str, rng: random.Random) -> str:
    """One to three of the edits, in random order."""
    for edit in rng.sample(EDITS, k=rng.choice([1, 1, 2, 3])):
        text = edit(text, rng)
    return text
