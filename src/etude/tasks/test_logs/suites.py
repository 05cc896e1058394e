"""JavaScript runners that print suites as an indented tree: a test is called by the suites above it and its own line."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from etude.tasks.test_logs.failures_only import plain
from etude.tasks.test_logs.log import FAILED, PASSED, RunLog, Statuses, UnreadableLog


@dataclass
class SuiteStack:
    """The suites that are open, each with its indent."""

    open: list[tuple[str, int]] = field(default_factory=list)

    def enter(self, line: str) -> None:
        """A line of a suite; those that stand as far in, or further, end. Lines without an indent are of no suite."""
        indent = len(line) - len(line.lstrip())
        if not indent:
            return
        while self.open and self.open[-1][1] >= indent:
            self.open.pop()
        self.open.append((line.strip(), indent))

    def name(self, test: str) -> str:
        return " - ".join([*(suite for suite, _ in self.open), test])


_MS = re.compile(r"\(\d+ms\)")
_JEST_TIMED = re.compile(r"^\s+[✓✕]\s(.*)\(\d+ms\)$")
_JEST_TEST = re.compile(r"^\s+[✓✕]\s(.*)")


def calypso(log: RunLog) -> Statuses:
    """Several runs of Jest in one log, each up to its summary or the first account of a failure."""
    found: Statuses = {}
    tree = SuiteStack()
    for run in log.text.split(" ./node_modules/.bin/jest ")[1:]:
        for line in run.split("\n"):
            if line.startswith(("Test Suites", "  ● ")):
                break
            mark = line.strip()[:1]
            if mark in ("✓", "✕"):
                match = (_JEST_TIMED if _MS.search(line) else _JEST_TEST).match(line)
                if match is None:
                    raise UnreadableLog(f"the test of {line[:80]!r} has no name")
                # Also below no suite at all there is a dash before the name, as swebench joins them.
                name = " - ".join([" - ".join(suite for suite, _ in tree.open), match[1]])
                found[name.strip()] = PASSED if mark == "✓" else FAILED
            else:
                tree.enter(line)
    return found


_ASSERTION = re.compile(r"AssertionError:\s+#([\s\S]*?)\n\n")
_KARMA_NOISE = ("ERROR", "LOG", "WARN", "Check", "in")
_KARMA_TESTS = ((re.compile(r".*?✗\s*(.*)"), FAILED), (re.compile(r".*?✓\s*(.*)"), PASSED))
_CYPRESS_SUITE = re.compile(r"Running\:(.*)\)\n{3}\s{2}(.*)\n")
_CYPRESS_TESTS = (
    (re.compile(r"^\s{4}\d+\)\s(.*)", re.MULTILINE), FAILED),
    (re.compile(r"^\s{4}✓\s(.*)\(", re.MULTILINE), PASSED),
)


def fusion_next(log: RunLog) -> Statuses:
    """Cypress in one version, karma in the others."""
    return _next_cypress(log) if log.version == "1.27" else _next_karma(log)


def _next_karma(log: RunLog) -> Statuses:
    found: Statuses = {}
    tree = SuiteStack()
    for run in _ASSERTION.sub("", plain(log.text)).split(" xvfb-run ")[1:]:
        for line in run.split("Starting browser Chrome")[-1].split("\n"):
            if line.startswith("TOTAL"):
                break
            if line.strip().startswith(_KARMA_NOISE):
                continue
            for pattern, status in _KARMA_TESTS:
                if match := pattern.match(line):
                    found[tree.name(match[1])] = status
                    break
            else:
                tree.enter(line)
    return found


def _next_cypress(log: RunLog) -> Statuses:
    found: Statuses = {}
    pieces = _CYPRESS_SUITE.split(log.text)[1:]  # what is between, the suite, what follows it; again and again
    for suite, output in zip(pieces[1::3], pieces[2::3], strict=True):
        for pattern, status in _CYPRESS_TESTS:
            found |= {f"{suite}: {test.strip()}": status for test in pattern.findall(output)}
    return found


_MOCHA_TESTS = (
    (re.compile(r"✔\s(.*)\s\(\d+m+s\)"), PASSED),
    (re.compile(r"✔\s(.*)"), PASSED),
    (re.compile(r"\d+\)\s(.*)\s\(\d+m+s\)"), FAILED),
    (re.compile(r"\d+\)\s(.*)"), FAILED),
)


def lighthouse_mocha(log: RunLog) -> Statuses:
    found: Statuses = {}
    for run in re.split(r"running\s\d+\stest\sfiles", log.text)[1:]:
        tree = SuiteStack()
        for line in re.split(r"\d+\spassing", run)[0].strip().split("\n"):
            for pattern, status in _MOCHA_TESTS:
                if match := pattern.match(line.strip()):
                    found[tree.name(match[1])] = status
                    break
            else:
                tree.enter(line)
    return found


_EPILOGUE = re.compile(r"\n[ \t]*\d+ passing")


def highlightjs(log: RunLog) -> Statuses:
    """Up to the count of what passed, behind which failures are listed again at length. Only the innermost suite is part of a name."""
    found: Statuses = {}
    suite: list[str] = []
    for line in _EPILOGUE.split(log.text)[0].split("\n"):
        stripped = line.strip()
        if stripped.startswith(("✓", "✔")):
            status, test = PASSED, line.split(stripped[0], 1)[1]
        elif re.match(r"^\d+\)", stripped):
            status, test = FAILED, line.split(")", 1)[1]
        else:
            suite = [stripped] if line.startswith("  ") else suite
            continue
        found[".".join([*suite, _MS.sub("", test).strip()])] = status
    return found


_KARMA_LINE = re.compile(r"^(\s*)?([✔✖])?\s(.*)$")


def karma(log: RunLog) -> Statuses:
    """A suite is opened by a deeper indent and closed by a shallower one, whose own line is lost. Ends at the summary."""
    found: Statuses = {}
    suites: list[str] = []
    deep, started = -1, False
    for line in log.lines:
        if line.startswith("SUMMARY:"):
            break
        if "Starting browser" in line:
            started = True
            continue
        match = _KARMA_LINE.match(line) if started else None
        if match is None:
            continue
        indent, mark, name = match.groups()
        if mark:
            found[" > ".join([*suites, name])] = PASSED if mark == "✔" else FAILED
        elif indent and len(indent) > deep:
            suites.append(name)
            deep = len(indent)
        elif indent and len(indent) < deep:
            if not suites:
                raise UnreadableLog(f"{line[:80]!r} ends a suite where none is open")
            suites.pop()
            deep = len(indent)
    return found
