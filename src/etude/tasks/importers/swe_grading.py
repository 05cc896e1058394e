"""What the log of a row's `eval_script` says of an attempt, decided as `swebench` 5.0.2 decides it (its `harness/grading.py`), and where
Etude asks for more.

    FAIL_TO_PASS   PASSED or XFAIL; a skipped or missing test has failed
    PASS_TO_PASS   the same, or SKIPPED
    fail_only      a test has failed only if the log says FAILED; readers of such repositories name failures alone, so a log that names
                   nothing must show that a suite ran

`resolved` is theirs. `score` is ours, and never above it: a status that is no known word (`ERRORS`) drops a test from both of their lists,
and an empty list counts as kept there; here a test that is in neither list is not passed, and a row that names no test shows nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from etude.tasks.errors import TaskError
from etude.tasks.test_logs import (
    compiled_runners,
    failures_only,
    javascript_reports,
    one_line,
    python_runners,
    suites,
)
from etude.tasks.test_logs.log import ERROR, FAILED, PASSED, SKIPPED, XFAIL, Reader, RunLog, Statuses, UnreadableLog

# The readers by the names that rows use: those of `swebench` 5.0.2, of its older sets' repositories, and of the
# family's own variants.


_PYTEST = ("pytest", "astroid", "flask", "marshmallow", "pvlib", "pyvista", "sqlfluff", "xarray")
_BY_WORD: dict[str, Reader] = {
    **dict.fromkeys(_PYTEST, python_runners.pytest),
    **dict.fromkeys(("pytest_options", "pydicom", "requests", "pylint"), python_runners.pytest_options),
    **dict.fromkeys(("pytest_v2", "astropy", "scikit", "sphinx"), python_runners.pytest_v2),
    "django": python_runners.django,
    "matplotlib": python_runners.matplotlib,
    "seaborn": python_runners.seaborn,
    "sympy": python_runners.sympy,
    "calypso": suites.calypso,
    "next": suites.fusion_next,
    "karma": suites.karma,
    "highlightjs": suites.highlightjs,
    **dict.fromkeys(("carbon", "react_pdf"), javascript_reports.jest_files),
    "grommet": javascript_reports.grommet,
    "prismjs": javascript_reports.prismjs,
    "lighthouse": javascript_reports.lighthouse,
    "quarto_cli": javascript_reports.quarto_cli,
    "immutable_js": javascript_reports.immutable_js,
    "jekyll": javascript_reports.jekyll,
    "bpmn_js": failures_only.bpmn_js,
    "chart_js": failures_only.chart_js,
    "eslint": failures_only.eslint,
    "marked": failures_only.marked,
    "openlayers": failures_only.openlayers,
    "p5js": failures_only.p5js,
    "jest": one_line.jest,
    "jest_json": one_line.jest_json,
    "vitest": one_line.vitest,
    "tap": one_line.tap,
    "redis": one_line.redis,
    "jq": one_line.jq,
    "micropython_test": one_line.micropython,
    "googletest": one_line.googletest,
    "gotest": one_line.gotest,
    "ant": one_line.ant,
    "minitest": one_line.minitest,
    "cucumber": one_line.cucumber,
    "ruby_unit": one_line.ruby_unit,
    "rspec_transformed_json": one_line.rspec,
    "cargo": one_line.cargo,
    "doctest": compiled_runners.doctest,
    "maven": compiled_runners.maven,
    "gradle_custom": compiled_runners.gradle,
    "phpunit": compiled_runners.phpunit,
}
READERS: dict[str, Reader] = {f"parse_log_{word}": reader for word, reader in _BY_WORD.items()}


def reader(name: str) -> Reader:
    """The reader of this name, with or without `parse_log_`. Raises TaskError."""
    found = READERS.get(name if name.startswith("parse_log_") else f"parse_log_{name}")
    if found is None:
        raise TaskError(f"no reader of logs is called {name!r}; there are {', '.join(READERS)}")
    return found


START, END = ">>>>> Start Test Output", ">>>>> End Test Output"
EXIT_CODE = ">>>>> Test Exit Code"
# Of older eval scripts: any of them means that there is nothing to read.
_NOTHING_RAN = (">>>>> Patch Apply Failed", ">>>>> Reset Failed", ">>>>> Tests Errored", ">>>>> Tests Timed Out")
_EXIT_CODE = re.compile(rf"{re.escape(EXIT_CODE)}:\s*(-?\d+)")
# A suite ran, by the words of the runners that are silent about passes; each count above 0, for a runner without its browser counts 0.
SUITE_RAN = re.compile(
    r"Executed [1-9]\d* of \d+|TOTAL: [1-9]\d* (?:SUCCESS|FAILED)|[1-9]\d* passing|Tests:\s+[1-9]\d*"
    r"|Test Suites:\s+(?:\d+ \w+, )*[1-9]\d* total|^# tests [1-9]\d*|[1-9]\d* specs?, \d+ failures?|': ok$",
    re.MULTILINE,
)

EvalType = Literal["pass_and_fail", "fail_only"]
EVAL_TYPES: tuple[EvalType, ...] = ("pass_and_fail", "fail_only")
FAIL_ONLY_REPOS = frozenset(
    (
        "chartjs/Chart.js",
        "processing/p5.js",
        "markedjs/marked",
        "bpmn-io/bpmn-js",
        "openlayers/openlayers",
        "eslint/eslint",
    )
)
MAX_STATUS_CHARS = 4300  # more digits Python takes for no number
F2P, P2P = "FAIL_TO_PASS", "PASS_TO_PASS"


@dataclass(frozen=True)
class Expected:
    """What a row says of its tests."""

    instance_id: str
    log_parser: str
    fail_to_pass: Sequence[str]
    pass_to_pass: Sequence[str]
    eval_type: EvalType = "pass_and_fail"
    version: str = ""


@dataclass(frozen=True)
class SweDecision:
    """`kept` and `lost`: the row's tests by list, as the report of `swebench` has them. `reason`: why `score` is 0."""

    resolved: bool
    applied: bool  # there are results to go by
    kept: Mapping[str, tuple[str, ...]]
    lost: Mapping[str, tuple[str, ...]]
    reason: str = ""

    @property
    def score(self) -> float:
        return float(not self.reason)

    def to_json(self) -> dict[str, Any]:
        """The same as `report.json` of `swebench`, with what it calls `tests_status`."""
        tests = {name: {"success": list(self.kept[name]), "failure": list(self.lost[name])} for name in self.kept}
        return {"patch_successfully_applied": self.applied, "resolved": self.resolved, "tests_status": tests}


def decide(content: str, expected: Expected) -> SweDecision:
    """Raises UnreadableLog, at which `swebench` ends with an exception, and TaskError for a reader that there is none of."""
    statuses, trouble = results(content, expected)
    if trouble:
        return SweDecision(False, False, {}, {}, trouble)
    maintained = _MAINTAINED[expected.eval_type]
    lists = {
        F2P: _split(expected.fail_to_pass, statuses, _SHOWN[expected.eval_type]),
        P2P: _split(expected.pass_to_pass, statuses, maintained),
    }
    kept, lost = ({name: pair[side] for name, pair in lists.items()} for side in (0, 1))
    resolved = not any(lost.values())
    return SweDecision(resolved, True, kept, lost, _objection(expected, kept, lost))


def results(content: str, expected: Expected) -> tuple[Statuses, str]:
    """The tests by name, and why they don't count; empty if they do."""
    text = content.replace("\r\n", "\n").replace("\r", "\n")
    if mark := next((mark for mark in _NOTHING_RAN if mark in text), ""):
        return {}, f"the log says {mark!r}"
    if START not in text or END not in text:
        return {}, "the log lacks the marks around the tests' output: they did not begin, or were cut off"
    read = reader(expected.log_parser)
    candidates = [
        text.split(START)[1].split(END)[0],
        text,
    ]  # the whole log where what is between the marks names no test
    statuses: Statuses = {}
    for part in candidates:
        statuses = statuses or read(RunLog(part, expected.instance_id, expected.version))
    if not statuses and not SUITE_RAN.search(text):
        return {}, "the log names no test, and nothing in it shows that a suite ran"
    status = _status(text)
    if status and statuses and not {FAILED, ERROR}.intersection(statuses.values()):
        return (
            {},
            f"the tests ended with status {status}, yet the log tells of no failure: it is not of the run that happened",
        )
    return statuses, ""


def _status(text: str) -> int:
    """The first exit status that the log tells; 0 where it tells none."""
    found = _EXIT_CODE.search(text)
    if found is None:
        return 0
    if len(found[1]) > MAX_STATUS_CHARS:
        raise UnreadableLog(f"the tests' exit status has {len(found[1])} digits")
    return int(found[1])


Rule = Callable[[str | None], bool | None]  # a status to kept, lost or neither; None: the test is missing


def _shown(status: str | None) -> bool | None:
    if status in (PASSED, XFAIL):
        return True
    return False if status in (None, FAILED, ERROR, SKIPPED) else None


def _maintained(status: str | None) -> bool | None:
    return True if status == SKIPPED else _shown(status)


_SHOWN: dict[EvalType, Rule] = {"pass_and_fail": _shown, "fail_only": lambda status: status != FAILED}
_MAINTAINED: dict[EvalType, Rule] = {"pass_and_fail": _maintained, "fail_only": _SHOWN["fail_only"]}


def _split(names: Sequence[str], statuses: Statuses, rule: Rule) -> tuple[tuple[str, ...], tuple[str, ...]]:
    exact = rule is _SHOWN["fail_only"]
    judged = [(name, rule(statuses.get(name) if exact else status_of(name, statuses))) for name in names]
    return tuple(name for name, kept in judged if kept is True), tuple(name for name, kept in judged if kept is False)


def meant(name: str, tests: Collection[str]) -> list[str]:
    """The tests that a name means: itself, or all that begin with it where it ends within a parameter."""
    if name in tests:
        return [name]
    return sorted(test for test in tests if test.startswith(name)) if name.count("[") > name.count("]") else []


def status_of(name: str, statuses: Statuses) -> str | None:
    """676 names of SWE-bench Verified end within a parameter (`test_x[log(photon`): those stand for all tests that begin so, if these
    passed, or did not, all alike. Other names are exact."""
    found = [statuses[test] for test in meant(name, statuses)]
    if not found or name in statuses:
        return statuses.get(name)
    alike = len({status in (PASSED, XFAIL) for status in found}) == 1
    return found[0] if alike else None


def _objection(expected: Expected, kept: Mapping[str, Sequence[str]], lost: Mapping[str, Sequence[str]]) -> str:
    named = {F2P: expected.fail_to_pass, P2P: expected.pass_to_pass}
    for key, word in ((F2P, "not done"), (P2P, "broke something else")):
        if lost[key]:
            return f"{word}: failed {lost[key][0]} ({len(lost[key])} of {len(named[key])} of {key})"
        if odd := [name for name in named[key] if name not in kept[key]]:
            return f"{odd[0]} has a status in the log that is no known word: it is not counted as passed"
    return "" if named[F2P] else "the row names no test that shows the change"


# What a log holds where the machine failed and not the patch, in the order they are looked for (swebench's `infra_failure.py`). The
# second kind can come of a bad patch just as well. Neither changes a decision: it is reported with it, for the reader of the results.
_MACHINE = (
    ("browser_launch_failed", r"Failed to launch|Failed to connect to the bus"),
    ("display_unavailable", r"cannot open display|Missing X server|unable to open X display"),
    ("out_of_memory", r"Cannot allocate memory|OutOfMemoryError|^Killed$"),
    ("container_unavailable", r"Error response from daemon|Cannot connect to the Docker daemon"),
    ("network_unreachable", r"Could not resolve host|Temporary failure in name resolution"),
)
_EITHER = (
    ("missing_module", r"Cannot find module|MODULE_NOT_FOUND|ModuleNotFoundError"),
    ("no_tests_collected", r"no tests ran|collected 0 items"),
    ("tests_timed_out", r"Timeout error: \d+ seconds exceeded"),
)


def machine_trouble(text: str) -> tuple[str, Literal["environment", "ambiguous"]] | None:
    """The first sign in the log that the environment is at fault, and how sure it is."""
    for tier, signs in (("environment", _MACHINE), ("ambiguous", _EITHER)):
        for name, pattern in signs:
            if re.search(pattern, text, re.MULTILINE):
                return name, tier  # type: ignore[return-value]
    return None
