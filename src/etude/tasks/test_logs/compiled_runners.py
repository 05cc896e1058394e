"""Runners of Java, C++ and PHP whose words about one test stand on several lines."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from etude.tasks.test_logs.log import FAILED, PASSED, SKIPPED, RunLog, Statuses, UnreadableLog

_MAVEN_TEST = re.compile(r"^.*-Dtest=(\S+).*$")
_MAVEN_RESULT = re.compile(r"^.*BUILD (SUCCESS|FAILURE)$")
_MAVEN_WORDS = {"SUCCESS": PASSED, "FAILURE": FAILED}


def maven(log: RunLog) -> Statuses:
    """Each test is a run of its own under `set -x`: the commands name the tests, in the order of the BUILD lines. A result may come
    before its command where output was buffered."""
    found: Statuses = {}
    waiting: list[str] = []
    early: list[str] = []
    for line in map(str.strip, log.lines):
        if test := _MAVEN_TEST.match(line):
            waiting.append(test[1])
        if result := _MAVEN_RESULT.match(line):
            if waiting:
                found[waiting.pop(0)] = _MAVEN_WORDS[result[1]]
            else:
                early.append(result[1])
    return found | {test: _MAVEN_WORDS[word] for test, word in zip(waiting, early, strict=False)}


_GRADLE_WHOLE = re.compile(r"^([^>].+)\s+(PASSED|FAILED)$")
_GRADLE_NAME = re.compile(r"^([^>]\S*\s+>\s+\S+)$")


def gradle(log: RunLog) -> Statuses:
    """`Class > test PASSED`, or the name on one line and the status alone on a later one."""
    found: Statuses = {}
    waiting: str | None = None
    for line in map(str.strip, log.lines):
        if whole := _GRADLE_WHOLE.match(line):
            found[whole[1]] = whole[2]
            waiting = None
        elif name := _GRADLE_NAME.match(line):
            waiting = name[1]
        elif waiting and line in (PASSED, FAILED):
            found[waiting] = line
            waiting = None
    return found


_DOCTEST_END = "</doctest>"


def doctest(log: RunLog) -> Statuses:
    """The XML of `-r=xml`; a case passed if all expressions of it did. Cases without a subcase are not reported."""
    start = log.text.find("<doctest")
    if start < 0:
        return {}
    # Without an end tag the text stops after as many characters as that tag has: what swebench reads, which is no XML.
    stop = log.text.find(_DOCTEST_END, start) + len(_DOCTEST_END)
    try:
        root = ElementTree.fromstring(log.text[start:stop])
    except ElementTree.ParseError as error:
        raise UnreadableLog(f"the report of doctest is no XML: {error}") from error
    return {
        f"{case.get('name')} > {sub.get('name')}": PASSED
        if all(match.get("success") == "true" for match in sub.iterfind(".//Expression"))
        else FAILED
        for case in root.iterfind(".//TestCase")
        for sub in case.iterfind(".//SubCase")
    }


_PHP_SUITE = re.compile(r"^(\w.+) \(.+\)$")
_PHP_TEST = re.compile(r"^\s*([✔✘↩])\s*(.*)$")
_PHP_WORDS = {"✔": PASSED, "✘": FAILED, "↩": SKIPPED}


def phpunit(log: RunLog) -> Statuses:
    """With `--testdox`: a suite, then its tests."""
    found: Statuses = {}
    suite: str | None = None
    for line in log.lines:
        if match := _PHP_SUITE.match(line):
            suite = match[1]
        elif match := _PHP_TEST.match(line):
            found[f"{suite} > {match[2]}"] = _PHP_WORDS[match[1]]
    return found
