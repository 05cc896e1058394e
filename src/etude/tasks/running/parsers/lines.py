"""JSON lines of our own reporter of node:test, and of `go test -json`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from posixpath import relpath
from typing import Any

from etude.tasks.running.parsers.case import Case


def node(output: bytes, workdir: str) -> Iterator[Case]:
    """`file::outer > inner`. Suites are no tests; a test reported after its subtests has the nesting they had less one."""
    waiting: dict[tuple[str, int], list[tuple[list[str], dict[str, Any]]]] = {}
    for event in _objects(output):
        if "nesting" not in event or (event.get("good") and event["name"] == event.get("file")):
            continue  # a file that ended well and held no test
        file, level = _relative(str(event.get("file") or ""), workdir), int(event["nesting"])
        inner = waiting.pop((file, level + 1), [])
        mine = [([event["name"], *path], each) for path, each in inner]
        if not event.get("suite"):
            mine.append(([event["name"]], event))
        if level:
            waiting.setdefault((file, level), []).extend(mine)
            continue
        for path, each in mine:
            yield _case(file, path, each)


def _case(file: str, path: list[str], event: dict[str, Any]) -> Case:
    skipped = event.get("skip") or event.get("todo")
    outcome = "skipped" if skipped else "passed" if event["good"] else "failed"
    return Case(f"{file}::{' > '.join(path)}", outcome, file, float(event.get("seconds") or 0.0))


def go(output: bytes, workdir: str) -> Iterator[Case]:
    """`package::Test/sub` of test2json's events; what began and never ended has failed."""
    open_: dict[str, None] = {}
    ends = {"pass": "passed", "fail": "failed", "skip": "skipped"}
    for event in _objects(output):
        if "Test" not in event or "Action" not in event:
            continue
        name = f"{event.get('Package', '')}::{event['Test']}"
        if event["Action"] == "run":
            open_[name] = None
        elif event["Action"] in ends:
            open_.pop(name, None)
            yield Case(name, ends[event["Action"]], "", float(event.get("Elapsed") or 0.0))  # type: ignore[arg-type]
    for name in open_:
        yield Case(name, "failed")


def _objects(output: bytes) -> Iterator[dict[str, Any]]:
    for line in output.splitlines():
        if line.startswith(b"{"):
            try:
                event = json.loads(line)
            except (ValueError, RecursionError):
                continue  # what a test printed
            if isinstance(event, dict):
                yield event


def _relative(path: str, workdir: str) -> str:
    path = path.removeprefix("file://")
    return relpath(path, workdir) if path.startswith("/") else path
