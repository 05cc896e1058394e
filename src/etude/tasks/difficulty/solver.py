"""A scripted solver: it reads files in the order in which they match the words of the request, until it has seen all that has to change.

What it needs is a task's search effort: little where the request names the place, much where it tells a symptom. Files are ranked by the
weight of the request's words in them (BM25: Robertson and Zaragoza 2009), paths counted as text; new code of a reference needs no search.
Pure, the same on every machine.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import lru_cache

from etude.tasks.task import Task

WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]{2,}")
PARTS = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])")
K1, B = 1.2, 0.75  # BM25's usual ones


@dataclass(frozen=True)
class Effort:
    """Files and lines read until every file that changes was seen, and the edits that then make the reference."""

    files: int
    lines: int
    edits: int


def effort(task: Task) -> Effort:
    gone = [path for path in task.metadata.get("removed", ()) if path in task.files]
    wanted = {path for path in [*task.solution, *gone] if path in task.files}
    files = lines = 0
    for path in rank_files(task.instruction, task.files) if wanted else ():
        files, lines = files + 1, lines + len(task.files[path].splitlines())
        wanted.discard(path)
        if not wanted:
            break
    edits = len(gone) + sum(_pieces(task.files.get(path, ""), text) for path, text in task.solution.items())
    return Effort(files, lines, edits)


def rank_files(request: str, files: Mapping[str, str]) -> list[str]:
    """Paths, best match first; what matches nothing comes last, by name."""
    counted = {path: _words(f"{path}\n{text}") for path, text in files.items()}
    request_words = _words(request)
    mean = sum(sum(words.values()) for words in counted.values()) / max(1, len(counted))
    holding = Counter(word for words in counted.values() for word in words.keys() & request_words.keys())

    def score(path: str) -> float:
        words = counted[path]
        norm = K1 * (1 - B + B * sum(words.values()) / max(mean, 1.0))
        return sum(
            math.log(1 + (len(counted) - holding[word] + 0.5) / (holding[word] + 0.5))
            * words[word]
            * (K1 + 1)
            / (words[word] + norm)
            for word in words.keys() & request_words.keys()
        )

    return sorted(files, key=lambda path: (-score(path), path))


@lru_cache(maxsize=4096)  # a project's tasks share most of its files
def _words(text: str) -> Counter[str]:
    """Whole names, and the words that they are put together of."""
    found: Counter[str] = Counter()
    for name in WORD.findall(text):
        found[name.lower()] += 1
        parts = PARTS.findall(name)
        found.update(part.lower() for part in parts if len(parts) > 1 and len(part) > 2)
    return found


def _pieces(before: str, after: str) -> int:
    """Places where a text changes."""
    matcher = SequenceMatcher(None, before.splitlines(), after.splitlines(), autojunk=False)
    return sum(tag != "equal" for tag, *_ in matcher.get_opcodes())
