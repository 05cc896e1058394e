"""JavaScript runners whose logs name failures alone: an empty answer means that all passed, or that nothing ran (`swe_grading.SUITE_RAN`)."""

from __future__ import annotations

import re
from collections.abc import Iterable

from etude.tasks.test_logs.log import FAILED, RunLog, Statuses

_ANSI = re.compile(r"\x1B(?:[@-Z\\-_]|\[[0-?]*[ -/]*[@-~])")


def plain(text: str) -> str:
    """Without the escapes that colour a terminal."""
    return _ANSI.sub("", text)


def _failed(names: Iterable[str]) -> Statuses:
    return dict.fromkeys(names, FAILED)


def _one_line(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()


_ESLINT = re.compile(r"(\s{2}\d+\))([\s\S]*?)\s+(?:(.*)Error)")
_CHART = re.compile(r"Chrome\s[\d\.]+[^\S\r\n]\(.+?\)[^\S\r\n](.*)FAILED$", re.MULTILINE)
_MARKED = re.compile(r"^\d+\)\s(.*)")
_BPMN = (
    re.compile(r"2KPhantomJS\s[\d\.]+\s\(Linux\s[\d\.]+\)\s(.*)FAILED\n"),
    re.compile(r"2KPhantomJS\s[\d\.]+\s\(Linux\sx86\_64\)\s(.*)FAILED\n"),
    re.compile(r"Chrome\sHeadless\s.*\s\(Linux\sx86\_64\)\s(.*)FAILED\n"),
    re.compile(r"HeadlessChrome\s[\d\.]+\s\(Linux\s[\d\.]+\)\s(.*)FAILED\n"),
)
_OPENLAYERS = tuple(
    re.compile(pattern, re.MULTILINE)
    for pattern in (
        r"Chrome\sHeadless\s[\d\.]+\s\(Linux\s[\d\.\_\S]+\)\s(.*)\sFAILED\n",
        r"Chrome\s[\d\.]+\s\(Linux\s[\d\.\_\S]+\)\s(.*)FAILED\n",
        r"^\s{2}\d+\)([\s\S]*?)Error:",
        r"^case\s(.*):\smismatch",
    )
)


def eslint(log: RunLog) -> Statuses:
    return _failed(_one_line(match[2]) for match in _ESLINT.finditer(log.text))


def chart_js(log: RunLog) -> Statuses:
    return _failed(match[1] for match in _CHART.finditer(plain(log.text)))


def marked(log: RunLog) -> Statuses:
    return _failed(match[1].strip() for line in log.lines if (match := _MARKED.search(line)))


def bpmn_js(log: RunLog) -> Statuses:
    return _failed(match[1] for pattern in _BPMN for match in pattern.finditer(log.text))


def openlayers(log: RunLog) -> Statuses:
    return _failed(_one_line(match[1]) for pattern in _OPENLAYERS for match in pattern.finditer(log.text))


_P5_FAILURE = re.compile(r"^[^\S\n]*+(\d+)\)(.{0,1000}?):", re.MULTILINE | re.DOTALL)
_XML = re.compile(r"<(\w+)>[\s\S]*?<\/\1>", re.MULTILINE)
_CLOSING = {"{": "}", "[": "]"}


def p5js(log: RunLog) -> Statuses:
    """Mocha's numbered failures, once dumps of objects and of markup are out of the way: a name's lines are each further in."""
    text = _without_xml(_without_json(plain(log.text)))
    names = (match[2].split("\n") for match in _P5_FAILURE.finditer(text))
    return _failed(":".join(map(str.strip, lines)) for lines in names if _further_in(lines))


def _further_in(lines: list[str]) -> bool:
    indents = [0, *(len(line) - len(line.lstrip()) for line in lines)]
    return all(left < right for left, right in zip(indents, indents[1:], strict=False))


def _without_json(text: str) -> str:
    """Blocks end at a line of the bracket alone; a block of the one kind may lie open inside the other."""
    kept: list[str] = []
    open_: set[str] = set()
    for line in text.split("\n"):
        stripped = line.rstrip()
        if stripped.endswith(("{", "[")):
            open_.add(_CLOSING[stripped[-1]])
        elif stripped in open_:
            open_.discard(stripped)
        elif not open_ and not (
            stripped.startswith("{") and stripped.endswith("}") or stripped.startswith("[") and stripped.endswith("]")
        ):
            kept.append(line)
    return "\n".join(kept)


def _without_xml(text: str) -> str:
    while match := _XML.search(text):
        inner = max(match[0].count(f"<{match[1]}>") - 1, 0)
        text = text[: match.start()] + f"<{match[1]}>" * inner + text[match.end() :]
    return text
