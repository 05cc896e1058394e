"""State tracking: a file's version and n diffs in order are shown, the file after them is asked for.

Modelled on LoCoDiff (reconstruct a file from its git history); like the Composer 2 report (appendix B) we count the characters that
differ, since one wrong character would make an exact answer wrong. Torch-free: questions, prompt and distance.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from etude.core.sources.git_history import GitHistory, history
from etude.learn.corpus.judge import AcceptedFile, judge
from etude.learn.corpus.shape.unified import unified_diff

MOST_BYTES = 20_000  # of one version: more than that no laptop model reads, and its distance would outweigh all others
MOST_TRIES = 2_000  # candidates looked at for one number of changes: where none of them fits, no other would
LEAST_CHARACTERS = 40  # a file of a line or two says nothing about tracking


@dataclass(frozen=True)
class StateQuestion:
    """`texts` are the versions of one file in order, at least two; the last is asked for."""

    path: str
    texts: tuple[str, ...]

    @property
    def changes(self) -> int:
        return len(self.texts) - 1

    @property
    def answer(self) -> str:
        return self.texts[-1]

    @property
    def unchanged_distance(self) -> int:
        """Characters by which the trivial answer, the first version as it was, is off."""
        return edit_distance(self.texts[0], self.answer)

    def fence(self) -> str:
        """More backticks than occur in a row anywhere in the versions."""
        mark = "```"
        while any(mark in text for text in self.texts):
            mark += "`"
        return mark

    def prompt(self) -> str:
        """A document that a base model goes on with: no chat, no instruction, the answer up to the closing fence."""
        fence = self.fence()
        parts = [f"{self.path}, first version:\n{fence}\n{_ended(self.texts[0])}{fence}\n"]
        for number, (old, new) in enumerate(zip(self.texts, self.texts[1:], strict=False), 1):
            hunks = unified_diff(self.path, old, new).partition("+++ ")[2].partition("\n")[2]
            parts.append(f"Change {number} of {self.changes}:\n{fence}\n{_ended(hunks)}{fence}\n")
        return "\n".join([*parts, f"{self.path} after change {self.changes}:\n{fence}\n"])

    def parse_answer(self, continuation: str) -> tuple[str, bool]:
        """The text before the closing fence, and whether the model closed it."""
        text, fence, _ = ("\n" + continuation).partition("\n" + self.fence())
        return text[1:] + ("\n" if fence and text else ""), bool(fence)

    def distance(self, continuation: str) -> int:
        """Characters by which a continuation is off the answer; the last newline is not counted."""
        return edit_distance(self.parse_answer(continuation)[0].removesuffix("\n"), self.answer.removesuffix("\n"))


def state_questions(
    folder: Path, changes: Sequence[int], count: int, seed: int, fits: Callable[[StateQuestion], bool]
) -> list[StateQuestion] | None:
    """At most `count` questions for each number of changes, each of another file where there are enough; None without history.

    The same for the same history and seed. `fits` says whether the models that are asked can read a question.
    """
    with history(folder) as found:
        if found is None or not found.versions:
            return None
        questions: list[StateQuestion] = []
        for n in changes:
            taken = 0
            for question in islice(_candidates(found, n, random.Random(f"{seed} {n}")), MOST_TRIES):
                if taken == count:
                    break
                if fits(question):
                    questions.append(question)
                    taken += 1
        return questions


def _candidates(found: GitHistory, changes: int, rng: random.Random) -> Iterator[StateQuestion]:
    """One window of `changes` changes of every file, in random order; then, of the files that have more, another one."""
    windows = {path: len(ids) - changes for path, ids in sorted(found.versions.items()) if len(ids) > changes}
    starts = {path: rng.sample(range(most), most) for path, most in windows.items()}
    while starts:
        for path in rng.sample(sorted(starts), len(starts)):
            start = starts[path].pop()
            if not starts[path]:
                del starts[path]
            if texts := _texts(found, path, found.versions[path][start : start + changes + 1]):
                yield StateQuestion(path, texts)


def _texts(found: GitHistory, path: str, ids: Sequence[str]) -> tuple[str, ...]:
    """The versions as text; empty if one of them is nothing that a corpus would hold."""
    texts: list[str] = []
    for blob in ids:
        data = found.read(blob, MOST_BYTES)
        kept = None if data is None else judge(path, data)
        if not isinstance(kept, AcceptedFile) or len(kept.text) < LEAST_CHARACTERS:
            return ()
        texts.append(kept.text)
    return tuple(texts)


def _ended(text: str) -> str:
    return text if text.endswith("\n") else text + "\n"


# Levenshtein distance by Myers' bit-vector algorithm (JACM 46(3), 1999, in the form of Hyyrö 2003) with Python's long integers as the
# vectors: one column of the table is one number, so two texts of 4,000 characters take about 20 ms without a library.


def edit_distance(first: str, second: str) -> int:
    """Characters are Unicode code points."""
    start = _common(first, second)
    first, second = first[start:], second[start:]
    end = _common(first[::-1], second[::-1])
    first, second = first[: len(first) - end], second[: len(second) - end]
    if not first or not second:
        return len(first) + len(second)
    places: dict[str, int] = {}  # bit i where the pattern has the character at i
    for place, character in enumerate(first):
        places[character] = places.get(character, 0) | 1 << place
    full, last = (1 << len(first)) - 1, 1 << len(first) - 1
    rises, falls, distance = full, 0, len(first)  # vertical differences of +1 and -1 in the current column
    for character in second:
        equal = places.get(character, 0)
        diagonal = (((equal & rises) + rises) ^ rises) | equal | falls
        up, down = falls | ~(diagonal | rises) & full, rises & diagonal  # horizontal differences
        distance += bool(up & last) - bool(down & last)
        up = up << 1 | 1  # the table's first row rises by one a column
        rises = (down << 1 | ~(diagonal | up)) & full
        falls = up & diagonal
    return distance


def _common(first: str, second: str) -> int:
    """How many characters both begin with."""
    most = min(len(first), len(second))
    if first[:most] == second[:most]:
        return most
    low, high = 0, most  # the beginnings of length `low` are equal, those of `high` are not
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if first[:middle] == second[:middle] else (low, middle)
    return low
