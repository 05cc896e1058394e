"""Python's runners: pytest's short summary in its variants, Django's, SymPy's and Seaborn's own.

Of pytest's summary lines (`FAILED a.py::test - reason`) the first word is the unchanged status, be it a known word or one that
begins with one: the rule of `swebench`, whose grading counts an unknown word neither as passed nor as failed.
"""

from __future__ import annotations

import re

from etude.tasks.test_logs.log import ERROR, FAILED, PASSED, SKIPPED, WORDS, RunLog, Statuses, UnreadableLog

_COUNT = re.compile(r"^\[\d+\]$")  # `SKIPPED [2] a.py:3: reason`: how many, not which
_BUTTONS = (("MouseButton.LEFT", "1"), ("MouseButton.RIGHT", "3"))
_COLOUR = re.compile(r"\[(\d+)m")
_CONTROL = {code: None for code in range(1, 32)}


def _summary(line: str) -> tuple[str, str] | None:
    """The status and the name of a line of pytest's summary."""
    if not line.startswith(WORDS):
        return None
    words = (line.replace(" - ", " ") if line.startswith(FAILED) else line).split()
    if len(words) < 2 or words[0] == SKIPPED and _COUNT.match(words[1]):
        return None
    return words[0], words[1]


def pytest(log: RunLog) -> Statuses:
    return {match[1]: match[0] for line in log.lines if (match := _summary(line))}


def matplotlib(log: RunLog) -> Statuses:
    """Names of buttons differ between versions of Python."""
    text = log.text
    for name, number in _BUTTONS:
        text = text.replace(name, number)
    return pytest(RunLog(text))


def pytest_options(log: RunLog) -> Statuses:
    """Of a parameter that is an absolute path only the last part counts: it lies elsewhere on each machine."""
    found: Statuses = {}
    for line in log.lines:
        if match := _summary(line):
            name = match[1]
            first, last = name.find("["), name.rfind("]")
            if 0 <= first < last:
                value = name[first + 1 : last]
                if value.startswith("/") and not value.startswith("//") and "*" not in value:
                    value = "/" + value.split("/")[-1]
                name = f"{name[:first]}[{value}]"
            found[name] = match[0]
    return found


def pytest_v2(log: RunLog) -> Statuses:
    """Newer summaries, whose names may hold spaces, in colour or not; and lines that end in the status, as older versions have them."""
    found: Statuses = {}
    for raw in log.lines:
        line = _COLOUR.sub("", raw).translate(_CONTROL)
        if line.startswith(WORDS):
            words = (line.split(" - ", 1)[0] if line.startswith(FAILED) else line).split()
            if len(words) >= 2 and not (words[0] == SKIPPED and _COUNT.match(words[1])):
                found[" ".join(words[1:])] = words[0]
        elif line.endswith(WORDS):
            words = line.split()
            if len(words) >= 2:
                found[" ".join(words[:-1])] = words[-1]
    return found


def seaborn(log: RunLog) -> Statuses:
    found: Statuses = {}
    for line in log.lines:
        words = line.split()
        if len(words) < 2:
            continue
        if line.startswith(FAILED):
            found[words[1]] = FAILED
        elif f" {PASSED} " in line:
            if words[1] == PASSED:
                found[words[0]] = PASSED
        elif line.startswith(PASSED):
            found[words[1]] = PASSED
    return found


_SYMPY_FAILURE = re.compile(r"(_*) (.*)\.py:(.*) (_*)")
_SYMPY_ENDINGS = ((" E", ERROR), (" F", FAILED), (" ok", PASSED))


def sympy(log: RunLog) -> Statuses:
    found = {f"{match[2]}.py:{match[3]}": FAILED for match in _SYMPY_FAILURE.finditer(log.text)}
    for line in map(str.strip, log.lines):
        for ending, status in _SYMPY_ENDINGS:
            if line.startswith("test_") and line.endswith(ending):
                found[line.split()[0]] = status
    return found


_VERSION = "--version is equivalent to version"
_MIGRATION = "Applying sites.0002_alter_domain_unique...test_no_migrations"
_PASSES = (" ... ok", " ... OK", " ...  OK")
# A long print of the runner itself may stand between a test's name and its `ok`.
_INTERRUPTED = tuple(
    re.compile(rf"^(.*?)\s\.\.\.\s{between}\nok$", re.MULTILINE)
    for between in (
        r"Testing\ against\ Django\ installed\ in\ ((?s:.*?))\ silenced\)\.",
        r"Internal\ Server\ Error:\ \/(.*)\/",
        r"System check identified no issues \(0 silenced\)",
    )
)


def django(log: RunLog) -> Statuses:
    found: Statuses = {}
    last: str | None = None  # the test whose line began last: its `ok` may come on a later line
    for line in map(str.strip, log.lines):
        if _VERSION in line:
            found[_VERSION] = PASSED
        if " ... " in line:
            last = line.split(" ... ")[0]
        if ending := next((ending for ending in _PASSES if line.endswith(ending)), None):
            if line.startswith(_MIGRATION):  # one instance prints both on a line (django__django-7188)
                line = line.split("...", 1)[-1].strip()
            found[line.rsplit(ending, 1)[0]] = PASSED
        if " ... skipped" in line:
            found[line.split(" ... skipped")[0]] = SKIPPED
        for word, status in (("FAIL", FAILED), ("ERROR", ERROR)):
            if line.endswith(f" ... {word}"):
                found[line.split(f" ... {word}")[0]] = status
            if line.startswith(f"{word}:"):
                found[_second(line)] = status
        if line.startswith("ok") and last is not None:
            found[last] = PASSED
    for pattern in _INTERRUPTED:
        found |= {match[1]: PASSED for match in pattern.finditer(log.text)}
    return found


def _second(line: str) -> str:
    words = line.split()
    if len(words) < 2:
        raise UnreadableLog(f"{line!r} names no test")
    return words[1]
