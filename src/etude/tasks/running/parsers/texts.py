"""What runners print for people, read line by line: TAP, cargo, unittest."""

from __future__ import annotations

import re
from collections.abc import Iterator

from etude.tasks.running.parsers.case import Case

_TAP = re.compile(r"^(\s*)(not )?ok\b(?:\s+\d+)?\s*-?\s*(.*?)(?:\s+#\s*(skip|todo)\b.*|\s+# time=.*)?$", re.IGNORECASE)
_CARGO = re.compile(r"^test (\S.*?)(?: - should panic)? \.\.\. (ok|FAILED|ignored)")
_RUNNING = re.compile(r"^\s+Running (?:unittests )?(\S+)|^\s+Doc-tests (\S+)")
_UNITTEST = re.compile(r"^(\w+) \(([\w.<>]+)\)(?:.*?) \.\.\. (.*)$")


def tap(output: bytes) -> Iterator[Case]:
    """Level by level: `outer > inner` where inner lines stand before the outer's own; the outer's is left to its inner ones. Flat
    assertions (tape) stand under the comment that names their test. Names that come twice get numbers, so that none hides another."""
    inner: list[tuple[int, str, str]] = []
    seen: dict[str, int] = {}
    group = ""
    for line in output.decode("utf-8", "replace").splitlines():
        if (found := _TAP.match(line)) is None:
            if line.startswith("# ") and not line.startswith("# Subtest:"):
                group = f"{line[2:].strip()} > "
            continue
        depth = len(found[1].expandtabs(4))
        outcome = "skipped" if found[4] else "failed" if found[2] else "passed"
        name = found[3].rstrip(" {")
        below = [one for one in inner if one[0] > depth]
        inner = [one for one in inner if one[0] <= depth]
        mine = [(depth, f"{name} > {told}", state) for _, told, state in below] or [(depth, name, outcome)]
        inner += mine
        if depth == 0:
            for _, told, state in inner:
                yield Case(_numbered(group + told, seen), state)  # type: ignore[arg-type]
            inner = []


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
    """`module.Class::test` of `python -m unittest -v`; a docstring's first line stands between, or not."""
    lines = output.decode("utf-8", "replace").splitlines()
    for number, line in enumerate(lines):
        found = _UNITTEST.match(line) or _UNITTEST.match(
            f"{line} {lines[number + 1]}" if number + 1 < len(lines) else ""
        )
        if found is None:
            continue
        holder = found[2].removesuffix(f".{found[1]}")  # since 3.11 the test's own name stands there too
        end = found[3].strip()
        outcome = (
            "passed"
            if end == "ok"
            else "skipped"
            if end.startswith("skipped") or "expected failure" in end
            else "failed"
        )
        yield Case(f"{holder}::{found[1]}", outcome)
