"""Grader `review`: comments on changes, anchored to lines, against the defects that were put there.

Comments stand in a file of JSON lines, `{"path", "line", "severity", "text"}`. Found is a defect with a comment within two lines of it;
a comment near no defect is a false alarm. The score is 1 if the share of the defects found and the share of comments that
are right (recall and precision) reach what the task asks, else 0. What it catches:

- comments on every line, or on every function: precision. A change has many more lines than defects
- none at all: every task holds clean changes and changes with defects, so that neither silence nor noise passes
- several comments on one defect: beyond the second they are false alarms, so that a sweep over the lines around does not pay
- comments without a word: a text of at least `FEWEST_CHARS` characters is asked. Whether it tells the defect is for a judge

Nothing is run: what an agent wrote is data.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from etude.sandbox.protocol import Machines
from etude.tasks.task import Task, Verdict

NAME = "review"
NEAR_LINES = 2
FEWEST_CHARS = 15
MAX_COMMENTS = 200
MAX_BYTES = 1 << 18
SEVERITIES = ("low", "medium", "high", "critical")
PER_DEFECT = 2


@dataclass(frozen=True)
class Comment:
    path: str
    line: int


class MalformedComments(ValueError):
    """A file of comments that can't be read; says which line."""


class ReviewGrader:
    """`hidden`: path (of the comments), defects [{path, first, last}], recall, precision."""

    async def grade(self, task: Task, files: dict[str, bytes], pool: Machines) -> Verdict:
        start = time.perf_counter()
        defects = task.hidden["defects"]
        names = [f"{one['path']}:{one['first']}" for one in defects]
        try:
            comments = read_comments(files.get(task.hidden["path"]), task.hidden["path"])
        except MalformedComments as error:
            return Verdict(0.0, dict.fromkeys(names, False), str(error), time.perf_counter() - start)
        found, right = match_comments(comments, defects)
        results = dict(zip(names, found, strict=True))
        recall = sum(found) / len(found)
        precision = right / len(comments) if comments else 0.0
        good = recall >= task.hidden["recall"] and precision >= task.hidden["precision"]
        reason = f"found {sum(found)} of {len(found)} defects; {right} of {len(comments)} comments are near one"
        return Verdict(float(good), results, "" if good else reason, time.perf_counter() - start)


def read_comments(data: bytes | None, path: str) -> list[Comment]:
    """Raises Malformed. The same place twice with the same text is one comment."""
    if data is None:
        raise MalformedComments(f"{path} is missing: no review was written")
    if len(data) > MAX_BYTES:
        raise MalformedComments(f"{path} has {len(data)} bytes, {MAX_BYTES} at most are read")
    found: list[Comment] = []
    for number, line in enumerate(data.decode("utf-8", "replace").splitlines(), 1):
        if line.strip():
            found.append(_comment(line, f"{path}:{number}"))
    if len(found) > MAX_COMMENTS:
        raise MalformedComments(f"{path} has {len(found)} comments, {MAX_COMMENTS} at most are read")
    return found


def _comment(line: str, where: str) -> Comment:
    try:
        row: Any = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise MalformedComments(f"{where} is no JSON: {error}") from error
    if not isinstance(row, dict):
        raise MalformedComments(f"{where} is no object")
    path, at, text = row.get("path"), row.get("line"), row.get("text")
    if not isinstance(path, str) or not isinstance(at, int) or isinstance(at, bool):
        raise MalformedComments(f"{where} needs `path`, a string, and `line`, a whole number")
    if not isinstance(text, str) or len(text.strip()) < FEWEST_CHARS:
        raise MalformedComments(f"{where} needs `text` of at least {FEWEST_CHARS} characters")
    if row.get("severity") not in SEVERITIES:
        raise MalformedComments(
            f"{where} needs `severity`, one of {', '.join(SEVERITIES)}; it says {row.get('severity')!r}"
        )
    return Comment(path.removeprefix("./"), at)


def match_comments(comments: Sequence[Comment], defects: Sequence[Mapping[str, Any]]) -> tuple[list[bool], int]:
    """Which defects were found, and how many comments are right. A comment counts for the nearest defect alone."""
    hits = [0] * len(defects)
    for comment in comments:
        near = [(_distance(comment, one), number) for number, one in enumerate(defects)]
        distance, number = min(near, default=(NEAR_LINES + 1, 0))
        if distance <= NEAR_LINES:
            hits[number] += 1
    return [hit > 0 for hit in hits], sum(min(hit, PER_DEFECT) for hit in hits)


def _distance(comment: Comment, defect: Mapping[str, Any]) -> int:
    if comment.path != defect["path"]:
        return NEAR_LINES + 1
    return max(0, defect["first"] - comment.line, comment.line - defect["last"])
