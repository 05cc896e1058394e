"""What runners print for people, read line by line: TAP, cargo, unittest."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from etude.tasks.running.parsers.case import Case, Outcome

_TAP = re.compile(r"^(\s*)(not )?ok\b(?:\s+\d+)?\s*-?\s*(.*?)(?:\s+#\s*(skip|todo)\b.*|\s+# time=.*)?$", re.IGNORECASE)
_CARGO = re.compile(r"^test (\S.*?)(?: - should panic)? \.\.\. (ok|FAILED|ignored)")
_RUNNING = re.compile(r"^\s+Running (?:unittests )?(\S+)|^\s+Doc-tests (\S+)")
_UNITTEST = re.compile(r"^(\w+) \(([\w.<>]+)\)(?:.*?) \.\.\. (.*)$")


def tap(output: bytes) -> Iterator[Case]:
    """Level by level: `outer > inner` where inner lines stand before the outer's own; the outer's is left to its inner ones. Flat
    assertions (tape) stand under the comment that names their test. Names that come twice get numbers, so that none hides another."""
    levels: list[tuple[int, list[_TapLine]]] = []  # by depth, each deeper than the one before
    seen: dict[str, int] = {}
    group = ""
    for line in output.decode("utf-8", "replace").splitlines():
        if (found := _TAP.match(line)) is None:
            if line.startswith("# ") and not line.startswith("# Subtest:"):
                group = f"{line[2:].strip()} > "
            continue
        depth = len(found[1].expandtabs(4))
        deeper: list[list[_TapLine]] = []
        while levels and levels[-1][0] > depth:
            deeper.append(levels.pop()[1])
        if not levels or levels[-1][0] < depth:
            levels.append((depth, []))
        outcome: Outcome = "skipped" if found[4] else "failed" if found[2] else "passed"
        levels[-1][1].append(
            _TapLine(found[3].rstrip(" {"), outcome, [one for lines in reversed(deeper) for one in lines])
        )
        if depth == 0:
            for name, state in _named(levels.pop()[1], group):
                yield Case(_numbered(name, seen), state)


@dataclass(frozen=True)
class _TapLine:
    """A line of TAP with those inside it."""

    name: str
    outcome: Outcome
    inner: list[_TapLine]


def _named(lines: list[_TapLine], group: str) -> Iterator[tuple[str, Outcome]]:
    """The innermost lines in order, each with the names of those around it."""
    waiting = [(group, line) for line in reversed(lines)]
    while waiting:
        prefix, line = waiting.pop()
        if not line.inner:
            yield f"{prefix}{line.name}", line.outcome
        waiting += [(f"{prefix}{line.name} > ", one) for one in reversed(line.inner)]


def _numbered(name: str, seen: dict[str, int]) -> str:
    seen[name] = seen.get(name, 0) + 1
    return name if seen[name] == 1 else f"{name} #{seen[name]}"


def cargo(output: bytes) -> Iterator[Case]:
    """`tests/it.rs::module::name`, by the binary that cargo says it runs."""
    binary = ""
    ends = {"ok": "passed", "FAILED": "failed", "ignored": "skipped"}
    for line in output.decode("utf-8", "replace").splitlines():
        if running := _RUNNING.match(line):
            binary = running[1] or f"doc {running[2]}"
        elif found := _CARGO.match(line):
            file = binary if binary.endswith(".rs") else ""
            yield Case(f"{binary}::{found[1]}", ends[found[2]], file)  # type: ignore[arg-type]


def unittest(output: bytes) -> Iterator[Case]:
    """`module.Class::test` of `python -m unittest -v`; a docstring's first line is between them, or not."""
    lines = output.decode("utf-8", "replace").splitlines()
    for number, line in enumerate(lines):
        found = _UNITTEST.match(line) or _UNITTEST.match(
            f"{line} {lines[number + 1]}" if number + 1 < len(lines) else ""
        )
        if found is None:
            continue
        holder = found[2].removesuffix(f".{found[1]}")  # since 3.11 the test's own name is there too
        end = found[3].strip()
        outcome = (
            "passed"
            if end == "ok"
            else "skipped"
            if end.startswith("skipped") or "expected failure" in end
            else "failed"
        )
        yield Case(f"{holder}::{found[1]}", outcome)
