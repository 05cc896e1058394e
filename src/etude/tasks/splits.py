"""Which split a project's tasks belong to: whole projects are held out, and what is alike falls together (promise 10).

A project's name without its version, hashed, says where it goes; so every release of it goes there, on any machine and in any order. A
project under another name that is alike by its files goes where that one went: it is a fork, a renamed copy, or it vendors the other.
Similarity is measured by 13-grams of tokens (`fingerprint/`), of which every 16th by hash is kept (FracMinHash: Irber et al. 2022; Broder 1997's
sampling modulo): containment in the smaller of the two, since a copy inside a larger project is a leak as well. The textbook compares
whole files by their hash; renaming a package changes nearly every file of it, and few of its grams.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Literal

import numpy as np

from etude.core.fingerprint.project import project_name
from etude.core.fingerprint.publish import grams
from etude.tasks.content import is_text
from etude.tasks.errors import TaskError
from etude.tasks.task import Split

KEPT = 16  # one gram in this many
ALIKE = (
    0.4  # a renamed fork a few releases on keeps more than half of its grams, projects of one author share single files
)
LEAST_MARKS = 8  # about 130 grams: less code than that says nothing, and the name decides
CODE = frozenset(
    (".py", ".pyx", ".js", ".cjs", ".mjs", ".jsx", ".ts", ".tsx", ".go", ".rs", ".java", ".kt", ".c", ".h", ".cc", ".cpp", ".rb", ".php")
)  # fmt: skip

Marks = frozenset[int]
_VERSION = re.compile(r"-v?\d[^-]*$")


@dataclass(frozen=True)
class Shares:
    """Of all projects, or of the modules of each where there are few projects (`split_modules`); the rest is trained on. `by`: `auto` takes
    modules where there are fewer than four projects."""

    validation: float = 0.1
    heldout: float = 0.1
    by: Literal["auto", "project", "module"] = "auto"

    @property
    def training(self) -> float:
        return 1 - self.validation - self.heldout

    def __post_init__(self) -> None:
        if self.validation < 0 or self.heldout < 0 or self.validation + self.heldout > 1:
            raise TaskError(
                f"shares of projects for validation ({self.validation}) and held out ({self.heldout}) must be 0 or more, "
                "and at most 1 together"
            )


@dataclass(frozen=True)
class ProjectSplit:
    """A project whose split is settled. `marks`: what its code is known by, empty where only its name is."""

    name: str
    split: Split
    marks: Marks = frozenset()


class SplitConflict(TaskError):
    """A project that is alike to projects of two splits: its tasks belong to neither."""


def bare_name(project: str) -> str:
    """A project's name without the version that it was released as."""
    return _VERSION.sub("", project)


def by_name(name: str, shares: Shares) -> Split:
    """A larger share of held-out projects takes from those that were not: none that was held out comes free."""
    digest = hashlib.sha256(f"split {project_name(name)}".encode()).digest()
    point = int.from_bytes(digest[:8], "big") / 2**64
    if point < shares.heldout:
        return "heldout"
    return "validation" if point >= 1 - shares.validation and shares.validation else "train"


def marks_of(files: Mapping[str, str]) -> Marks:
    """Of a project's code, whatever its files are called."""
    found: set[int] = set()
    for path, text in files.items():
        if PurePosixPath(path).suffix in CODE and is_text(text):
            hashes = grams(text)
            found.update(hashes[hashes % np.uint64(KEPT) == 0].tolist())
    return frozenset(found)


def shared_fraction(one: Marks, other: Marks) -> float:
    """The share of the smaller's marks that the other has too; 0 where the smaller has too few to tell."""
    least = min(len(one), len(other))
    return len(one & other) / least if least >= LEAST_MARKS else 0.0


def split_for(name: str, marks: Marks, placed: Iterable[ProjectSplit], shares: Shares) -> Split:
    """Where the project goes, after those that went before it. Raises Torn."""
    own = project_name(name)
    akin = [one for one in placed if project_name(one.name) == own or shared_fraction(marks, one.marks) >= ALIKE]
    splits: dict[Split, str] = {one.split: one.name for one in akin}
    if len(splits) > 1:
        sides = " and ".join(f"{other} ({split})" for split, other in splits.items())
        raise SplitConflict(
            f"{name} is alike to {sides}, which are in two splits: leave one of them out, or give another --out"
        )
    return next(iter(splits)) if splits else by_name(name, shares)
