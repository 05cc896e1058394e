"""Which test files a change concerns: those that import what changed, name it, or are called after it; found by reading, not by running.

A wrong guess costs a candidate, never a task: what is graded was run. Few files are chosen, so that a candidate takes seconds; where no
file seems concerned, the quickest are tried.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from pathlib import PurePosixPath

from etude.tasks.generate.generator import InstalledProject

MOST = 5  # test files of a candidate
BUDGET_S = 30.0  # of their time on the untouched project
FEWEST_S, HANGS = 20.0, 10.0  # a run that takes this many times as long as on the untouched project hangs
_WORD = re.compile(r"[A-Za-z_$][\w$]*")
_INDEX = frozenset(("__init__", "index", "main", "src", "lib"))


class Concern:
    """Of one project: words of its test files, read once."""

    def __init__(self, project: InstalledProject) -> None:
        self.baseline = project.baseline
        self.tests = {path: project.files[path] for path in project.baseline.by_file if path in project.files}
        self._words = {path: frozenset(_WORD.findall(text)) for path, text in self.tests.items()}
        self._spread = _spread(self._words)

    def passing_tests(self, tests: Collection[str]) -> frozenset[str]:
        """The ids of these files that pass on the untouched project."""
        if not self.tests:
            return self.baseline.passed
        return frozenset(name for path in tests for name in self.baseline.by_file[path]) & self.baseline.passed

    def files(self, changed: Mapping[str, Collection[str]]) -> tuple[str, ...]:
        """The test files for changed paths and the names of functions changed in them, most concerned first. A runner that tells no
        files apart runs all."""
        scores = {path: self._score(path, changed) for path in self.tests}
        order = sorted(scores, key=lambda path: (-scores[path], self._seconds(path), path))
        chosen: list[str] = []
        spent = 0.0
        best = scores[order[0]] if order else 0.0
        for path in order:
            enough = chosen and (scores[path] <= best / 4 or spent + self._seconds(path) > BUDGET_S)
            if not enough and len(chosen) < MOST:
                chosen.append(path)
                spent += self._seconds(path)
        return tuple(sorted(chosen))

    def limit_s(self, tests: Collection[str], most: float) -> float:
        """After which a run of these files hangs: ten times what they take on the untouched project, where that is known."""
        if not self.tests:
            return most
        return min(most, max(FEWEST_S, HANGS * sum(self._seconds(path) for path in tests)))

    def _seconds(self, path: str) -> float:
        return self.baseline.seconds.get(path, 1.0)

    def _score(self, test: str, changed: Mapping[str, Collection[str]]) -> float:
        """A rare name that is mentioned says more than one that all tests have."""
        words, stem = self._words[test], PurePosixPath(test).stem.lower()
        total = 0.0
        for path, names in changed.items():
            place = PurePosixPath(path)
            module = place.stem if place.stem not in _INDEX else place.parent.name
            total += 3.0 * (
                module.strip("_").lower() in re.split(r"[._-]", stem)
                or module.strip("_").lower() == stem.removeprefix("test_")
            )
            total += 2.0 * (module in words) / max(1, self._spread.get(module, 1)) ** 0.5
            for name in {part for one in names for part in one.split(".") if not part.startswith("__")}:
                total += 6.0 * (name in words) / max(1, self._spread.get(name, 1)) ** 0.5
        return total


def _spread(words: Mapping[str, frozenset[str]]) -> dict[str, int]:
    found: dict[str, int] = {}
    for own in words.values():
        for word in own:
            found[word] = found.get(word, 0) + 1
    return found
