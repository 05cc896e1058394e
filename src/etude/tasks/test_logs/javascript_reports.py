"""JavaScript and TypeScript runners that report by file or as JSON, and repositories that changed their runner between rows."""

from __future__ import annotations

import json
import re

from etude.tasks.test_logs import one_line, suites
from etude.tasks.test_logs.log import FAILED, PASSED, Reader, RunLog, Statuses, UnreadableLog

_FILE_WORDS = {"PASS": PASSED, "FAIL": FAILED}
_FILE = re.compile(r"^(PASS|FAIL)\s(.*)")
# Tried in this order; greedy, so that with `(2 s) (3ms)` the outer one goes. The time need not end the line.
_FILE_TIMES = tuple(re.compile(rf"(.*)\s\([\d\.]+{unit}\)") for unit in ("ms", r"\ss", "s"))


def jest_files(log: RunLog) -> Statuses:
    """Jest's line for a whole file, without its time (carbon, react-pdf, lighthouse)."""
    found: Statuses = {}
    for line in log.lines:
        if match := _FILE.match(line):
            timed = next((timed for pattern in _FILE_TIMES if (timed := pattern.match(match[2]))), None)
            found[timed[1] if timed else match[2]] = _FILE_WORDS[match[1]]
    return found


_GROMMET_TIME = re.compile(r"\s\([\d\.]+\s?(?:ms|s)\)$")


def grommet(log: RunLog) -> Statuses:
    """The same; a file that is reported as both counts as passed."""
    found: Statuses = {}
    for word, status in (("FAIL", FAILED), ("PASS", PASSED)):
        for name in re.findall(rf"^{word}\s(.*)", log.text, re.MULTILINE):
            found[_GROMMET_TIME.sub("", name.strip())] = status
    return found


_PRISM = "./node_modules/.bin/mocha tests/run.js --reporter json"


def prismjs(log: RunLog) -> Statuses:
    """Mocha's JSON behind each of its commands, as `set -x` prints them."""
    found: Statuses = {}
    for run in log.text.split(_PRISM)[1:]:
        text = "{" + run.split("{", 1)[-1].rsplit("}", 1)[0] + "}"
        try:
            report = json.loads(text)
            for key, status in (("failures", FAILED), ("passes", PASSED)):
                found |= {test["fullTitle"]: status for test in report[key]}
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise UnreadableLog(
                f"mocha's command is not followed by its report: {type(error).__name__} {error}"
            ) from error
    return found


_TITLE = re.compile(r"\"fullTitle\"\:\s\"(.*)\",\n")
_LIGHTHOUSE_MOCHA = ("9.5", "10.0", "10.2")


def lighthouse(log: RunLog) -> Statuses:
    """Mocha's tree in three versions, Jest's files from version 3 on, mocha's JSON before."""
    if log.version in _LIGHTHOUSE_MOCHA:
        return suites.lighthouse_mocha(log)
    try:
        if float(log.version) >= 3:
            return jest_files(log)
    except ValueError as error:
        raise UnreadableLog(
            f"the row's version is {log.version!r}, which is no number: its runner isn't known"
        ) from error
    found: Statuses = {}
    for run in log.text.split("./node_modules/.bin/mocha --reporter json")[1:]:
        for key, end, status in (("passes", "]", PASSED), ("failures", "],", FAILED)):
            part = run.split(f'"{key}": [')[-1].rsplit(end, 1)[0]
            found |= dict.fromkeys(_TITLE.findall(part), status)
    return found


_QUARTO_TEST = re.compile(r"\[(smoke|unit)\]")
_QUARTO_END = re.compile(r"ERRORS|failures:")
_QUARTO_FOLDERS = (re.compile(r"/tmp/(\w+)\.qmd"), re.compile(r"/tmp/(\w+)/"))


def quarto_cli(log: RunLog) -> Statuses:
    """Deno's lines in colour; folders under /tmp, whose names differ in each run, are numbered in the order they come."""
    found: Statuses = {}
    numbers: dict[str, int] = {}
    for line in log.lines:
        if _QUARTO_END.search(line):
            break
        if not _QUARTO_TEST.search(line):
            continue
        for pattern in _QUARTO_FOLDERS:
            if folder := pattern.search(line):
                number = numbers.setdefault(folder[0], len(numbers))
                line = pattern.sub(f"/tmp/{number}", line)
        counts = all(word in line for word in ("passed", "failed", "steps"))
        if line.startswith("test result:") or counts or "34mINFO" in line:
            continue
        name = line.split("...")[0].strip()
        if "32mok" in line:
            found[name] = PASSED
        elif "31mFAILED" in line or name not in found:  # neither word: as good as failed
            found[name] = FAILED
    return found


_IMMUTABLE: dict[str, Reader] = {"2006": one_line.jest, "2005": one_line.jest_json}
_JEKYLL: dict[str, Reader] = {
    **dict.fromkeys(("9141", "8047", "8167"), one_line.minitest),
    **dict.fromkeys(("8761", "8771"), one_line.cucumber),
}


def immutable_js(log: RunLog) -> Statuses:
    """By the number of the change that the row is of, the last part of its id."""
    return _by_number(log, _IMMUTABLE, log.instance_id.split("-")[-1])


def jekyll(log: RunLog) -> Statuses:
    """Ruby, but the same habit: by the second part of the row's id."""
    parts = log.instance_id.split("-")
    return _by_number(log, _JEKYLL, parts[1] if len(parts) > 1 else "")


def _by_number(log: RunLog, readers: dict[str, Reader], number: str) -> Statuses:
    if number not in readers:
        raise UnreadableLog(
            f"the runner of row {log.instance_id!r} isn't known; it is of those of {', '.join(readers)}"
        )
    return readers[number](log)
