"""JUnit XML, as surefire, gradle, mocha-junit and many others write it; several files one after the other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from xml.etree import ElementTree

from etude.tasks.running.parsers.case import Case, NoReport


def junit(reports: Iterable[bytes]) -> Iterator[Case]:
    """`classname::name`. Raises NoReport."""
    for number, report in enumerate(reports, 1):
        try:
            root = ElementTree.fromstring(report)
        except ElementTree.ParseError as error:
            raise NoReport(f"JUnit report {number} does not parse: {error}") from error
        for case in root.iter("testcase"):
            tags = {child.tag for child in case}
            outcome = "failed" if tags & {"failure", "error"} else "skipped" if "skipped" in tags else "passed"
            yield Case(
                f"{case.get('classname')}::{case.get('name')}", outcome, case.get("file") or "", _s(case.get("time"))
            )


def bun(report: bytes) -> Iterator[Case]:
    """`file::suites > name`: bun names the file of each test, and its suites as the class. Raises NoReport."""
    for case in junit([report]):
        suites, _, name = case.name.partition("::")
        title = f"{suites} > {name}" if suites and suites != case.file else name
        yield replace(case, name=f"{case.file}::{title}")


def _s(text: str | None) -> float:
    try:
        return float((text or "0").replace(",", ""))
    except ValueError:
        return 0.0
