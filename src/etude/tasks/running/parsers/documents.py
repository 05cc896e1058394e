"""One JSON document a run: jest's and vitest's (the same form), mocha's."""

from __future__ import annotations

import json
from collections.abc import Iterator
from posixpath import relpath
from typing import Any

from etude.tasks.running.parsers.case import Case, NoReport, Outcome

_JEST: dict[str, Outcome] = {"passed": "passed", "failed": "failed"}  # pending, skipped, todo, disabled: skipped


def jest(report: bytes, workdir: str) -> Iterator[Case]:
    """`file::outer > inner`. Raises NoReport."""
    for file in _document(report, "testResults"):
        path = relpath(str(file["name"]), workdir) if file.get("name") else ""  # older jasmines name no file
        for case in file.get("assertionResults") or file.get("testResults") or []:
            name = " > ".join([*(case.get("ancestorTitles") or []), str(case.get("title", ""))])
            seconds = float(case.get("duration") or 0.0) / 1000
            yield Case(f"{path}::{name}", _JEST.get(case.get("status", ""), "skipped"), path, seconds)


def mocha(report: bytes, workdir: str) -> Iterator[Case]:
    """`file::full title`; mocha joins the titles of suites by blanks. Raises NoReport."""
    pending = {_title(case) for case in _document(report, "pending")}
    for case in _document(report, "tests"):
        path = relpath(str(case["file"]), workdir) if case.get("file") else ""
        outcome = "failed" if case.get("err") else "skipped" if _title(case) in pending else "passed"
        yield Case(f"{path}::{case.get('fullTitle')}", outcome, path, float(case.get("duration") or 0.0) / 1000)  # type: ignore[arg-type]
    for case in _document(report, "failures"):  # hooks too, which are no tests but fail in their name
        path = relpath(str(case["file"]), workdir) if case.get("file") else ""
        yield Case(f"{path}::{case.get('fullTitle')}", "failed", path)


def _title(case: dict[str, Any]) -> tuple[Any, Any]:
    return case.get("file"), case.get("fullTitle")


def _document(report: bytes, part: str) -> list[dict[str, Any]]:
    try:
        found = json.loads(report)[part]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise NoReport(f"the report is no JSON with {part!r}: {error}") from error
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise NoReport(f"{part!r} of the report is no list of objects")
    return found
