"""A rubric: criteria that a judge decides one at a time, each with ordered choices from worst to best. Its file is TOML:

name = "communication"

[[criteria]]
name = "claims"
question = "Is every claim of the final message shown by the log?"
weight = 2.0                                       # default 1
choices = ["contradicted", "unbacked", "backed"]   # worst to best; values by rank: 0, 0.5, 1
sees = ["request", "message", "trace"]             # default: all four parts, `diff` too

[[criteria]]
name = "simpler"
question = "Which of the two is simpler to read?"
kind = "pair"                                      # compares two attempts; its choices are first, second, tie
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal, get_args

from etude.core import bounded_toml

Kind = Literal["single", "pair"]
Part = Literal["request", "diff", "message", "trace"]
PARTS: tuple[Part, ...] = get_args(Part)
PAIR_CHOICES = ("second", "tie", "first")  # worst to best, from the view of the first


class RubricError(ValueError):
    """A rubric that can't be used: which file, which criterion, what is wrong."""


@dataclass(frozen=True)
class Criterion:
    """One question. `choices` are ordered from worst to best."""

    name: str
    question: str
    choices: tuple[str, ...]
    weight: float = 1.0
    kind: Kind = "single"
    sees: tuple[Part, ...] = PARTS

    def value(self, choice: str) -> float:
        """The choice's rank between 0 (worst) and 1 (best). Raises ValueError for one that is not in the list."""
        return self.choices.index(choice) / (len(self.choices) - 1)


@dataclass(frozen=True)
class Rubric:
    """Criteria under a name."""

    name: str
    criteria: tuple[Criterion, ...]

    @property
    def digest(self) -> str:
        """16 hex digits over all that a judge is asked: two runs with the same digest asked the same."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:16]

    def criterion(self, name: str) -> Criterion:
        """The criterion of this name. Raises KeyError with those there are."""
        for one in self.criteria:
            if one.name == name:
                return one
        raise KeyError(
            f"the rubric {self.name} has no criterion {name!r}; it has {', '.join(c.name for c in self.criteria)}"
        )


def read_rubric(path: Path) -> Rubric:
    """The rubric of a file; raises RubricError."""
    try:
        data = bounded_toml.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise RubricError(f"{path}: there is no such rubric") from error
    except (bounded_toml.TomlRefused, UnicodeDecodeError) as error:
        raise RubricError(f"{path} is no TOML: {error}") from error
    return rubric_of(data, str(path), path.stem)


def rubric_of(data: dict[str, Any], place: str, name: str = "") -> Rubric:
    """The rubric of parsed TOML; `place` is named in errors. Raises RubricError."""
    if strange := set(data) - {"name", "criteria"}:
        raise RubricError(f"{place}: a rubric has name and criteria, not {min(strange)!r}")
    rows = data.get("criteria")
    if not isinstance(rows, list) or not rows:
        raise RubricError(f"{place}: a rubric needs at least one [[criteria]] table")
    criteria = tuple(_criterion(row, f"{place}, criterion {number}") for number, row in enumerate(rows, 1))
    names = [one.name for one in criteria]
    if twice := {one for one in names if names.count(one) > 1}:
        raise RubricError(f"{place}: two criteria have the name {min(twice)!r}; a score is reported by its name")
    return Rubric(str(data.get("name", name)), criteria)


def _criterion(row: dict[str, Any], place: str) -> Criterion:
    known = {field.name for field in fields(Criterion)}
    if strange := set(row) - known:
        raise RubricError(f"{place}: unknown key {min(strange)!r}; there are {', '.join(sorted(known))}")
    name, question = row.get("name"), row.get("question")
    if not isinstance(name, str) or not name.strip() or not isinstance(question, str) or not question.strip():
        raise RubricError(f"{place}: name and question must be text")
    kind, weight = row.get("kind", "single"), row.get("weight", 1.0)
    if kind not in get_args(Kind):
        raise RubricError(f"{place} ({name}): kind is {kind!r}; it is single or pair")
    if isinstance(weight, bool) or not isinstance(weight, (int, float)) or not 0 < weight < float("inf"):
        raise RubricError(f"{place} ({name}): weight is {weight!r}; it must be a number above 0")
    return Criterion(name, question.strip(), _choices(row, kind, place), float(weight), kind, _sees(row, place))


def _choices(row: dict[str, Any], kind: Kind, place: str) -> tuple[str, ...]:
    choices = row.get("choices", PAIR_CHOICES if kind == "pair" else None)
    if kind == "pair":
        if tuple(choices) != PAIR_CHOICES:
            raise RubricError(f"{place}: a pair's choices are first, second and tie; leave the key out")
        return PAIR_CHOICES
    if not isinstance(choices, list) or not all(isinstance(one, str) and one.strip() for one in choices):
        raise RubricError(f"{place}: choices must be a list of words, worst first")
    if len(choices) < 2 or len(set(choices)) < len(choices):
        raise RubricError(f"{place}: choices must be two or more, none twice; they are {choices}")
    return tuple(choices)


def _sees(row: dict[str, Any], place: str) -> tuple[Part, ...]:
    sees = row.get("sees", list(PARTS))
    if not isinstance(sees, list) or not sees or any(part not in PARTS for part in sees):
        raise RubricError(f"{place}: sees must name some of {', '.join(PARTS)}; it is {sees!r}")
    return tuple(part for part in PARTS if part in sees)
