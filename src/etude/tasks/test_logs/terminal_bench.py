"""The parsers of Terminal-Bench 1 (`terminal-bench` 0.2.18): what the tests print, by the name that task.yaml gives.

All tests that are named must have passed. That package takes an empty list for passed too (`all` of nothing); here it is not, and a log
that its parser can't read is no pass in either.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from etude.tasks.test_logs.log import UnreadableLog

Results = dict[str, bool]
_SUMMARY = re.compile(r"=+\s*short test summary info\s*=+", re.IGNORECASE)
_PYTEST_WORDS = {"PASSED": True, "XFAIL": True, "SKIPPED": True, "FAILED": False, "XPASS": False, "ERROR": False}


def pytest(text: str) -> Results:
    """Of the short summary (`pytest -rA`). Tests are called by what follows the file's name."""
    _, found, summary = _halves(text)
    if not found:
        raise UnreadableLog(
            "there is no short test summary in what the tests printed: they did not run, or not with -rA"
        )
    results: Results = {}
    for line in summary.splitlines():
        entry = line.rpartition(" - ")[0] if line.startswith("FAILED") and " - " in line else line
        word, *name = entry.split(maxsplit=1)[:2] or [""]
        test = name[0].strip().split("::", 1)[-1] if name else ""
        if test and word.strip(":") in _PYTEST_WORDS:
            results[test] = _PYTEST_WORDS[word.strip(":")]
    return results


def _halves(text: str) -> tuple[str, bool, str]:
    found = _SUMMARY.search(text)
    return (text[: found.start()], True, text[found.end() :]) if found else (text, False, "")


def _between(start: str, end: str, word: str, strict: bool = True) -> Callable[[str], Results]:
    """One word between two lines."""

    def read(text: str) -> Results:
        if strict and not (start in text and end in text):
            raise UnreadableLog(f"the lines {start!r} and {end!r} are not in what the tests printed")
        return {"tests": text.split(start, 1)[-1].rsplit(end, 1)[0].strip() == word}

    return read


def swelancer(text: str) -> Results:
    lowered = text.lower()
    if "swe lancer success" in lowered:
        return {"swelancer_task": True}
    finished = "user_tool" in lowered and "completed" in lowered
    return {"swelancer_task": finished and "swe lancer failure" not in lowered}


PARSERS: dict[str, Callable[[str], Results]] = {
    "pytest": pytest,
    "swebench": _between("SWEBench results starts here", "SWEBench results ends here", "PASSED"),
    "sweperf": _between("SWE-Perf results starts here", "SWE-Perf results ends here", "PASSED"),
    "mlebench": _between(
        "MLEBench results starts here", "MLEBench results ends here", "ALL TESTS PASSED", strict=False
    ),
    "swelancer": swelancer,
}
